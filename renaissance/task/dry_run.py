"""Every executable of a run once, on blank pictures: compiles it, and shows how long it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from renaissance.core.settings import GlobalSettings
from renaissance.core.types import Shape
from renaissance.program import Program
from renaissance.task.evaluation import Evaluator
from renaissance.task.source import BatchSource, StackedSource
from renaissance.task.steps import blank_batch, train_on, training_calls


class BlankRun(NamedTuple):
    """One executable's run on blank pictures."""

    name: str
    shape: Shape
    loss: float
    seconds: float

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"{self.name} {size}  loss {self.loss:.4f}  {1000 * self.seconds:.1f} ms"


def blank_runs(
    program: Program,
    settings: GlobalSettings,
    train: BatchSource,
    val: BatchSource | None = None,
    evaluator: Evaluator | None = None,
    *,
    stacked: bool = True,
) -> Iterator[BlankRun]:
    """Run each training and validation shape once; the state is thrown away.

    Args:
        program: Compiled model.
        settings: For the seed of the weights.
        train: For the type of the pictures.
        val: Likewise; None: no validation.
        evaluator: Validates the program.
        stacked: Whether the run takes stacks of batches where the source has them.
    """
    state = program.init(settings.seed)
    for source in (val,) if stacked else (train, val):
        if isinstance(source, StackedSource):
            source.warm_up()
    for call in training_calls(program, train, stacked=stacked):
        batch = call.blank(train)
        started = time.perf_counter()
        state, metrics = train_on(program, state, batch)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - started
        loss = float(np.ravel(metrics["loss"])[0])
        name = "train step" if call.steps == 1 else f"{call.steps} train steps"
        yield BlankRun(name, call.shape, loss, seconds)
    if val is None or evaluator is None:
        return
    for ema in (False,) if program.config.ema is None else (False, True):
        for shape in program.config.shapes(training=False):
            started = time.perf_counter()
            blank = blank_batch(Shape(*shape), val)
            scores = evaluator.scores(state, [blank], ema=ema)
            seconds = time.perf_counter() - started
            name = "validation, EMA" if ema else "validation"
            assert scores is not None  # nobody was asked whether to stop
            yield BlankRun(name, Shape(*shape), scores.loss, seconds)
