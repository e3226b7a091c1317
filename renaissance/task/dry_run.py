"""A dry run: every executable once, on blank pictures."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import numpy as np

from renaissance.task.build import Build


def dry_run(built: Build) -> Iterator[str]:
    """Run each training and validation shape once; the state is thrown away.

    Yields:
        A line for each: what ran, its loss, its time.
    """
    program = built.program
    dtype = program.config.precision.compute.numpy
    state = program.init(built.settings.seed)
    for training in (True, False):
        for shape in program.config.shapes(training):
            batch = np.zeros(shape, dtype), np.zeros(shape.n, np.int32)
            started = time.perf_counter()
            if training:
                state, metrics = program.train_step(state, batch)
            else:
                metrics = program.evaluate(state, batch)
            jax.block_until_ready(state)
            milliseconds = 1000 * (time.perf_counter() - started)
            name = "train step" if training else "validation"
            loss = float(metrics["loss"])
            yield f"dry run: {name} {shape}  loss {loss:.4f}  {milliseconds:.1f} ms"
