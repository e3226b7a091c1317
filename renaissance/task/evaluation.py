"""Validation: mean scores over a set, of main or averaged weights, plain or over several views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

from renaissance.lowering.loss import softmax_cross_entropy, top_k_hits
from renaissance.lowering.state import ArrayState
from renaissance.program import Program
from renaissance.task.interrupt import StopOnInterrupt
from renaissance.task.metrics import Scores, ScoreSums
from renaissance.task.options import TTA

Batch = tuple[Any, Any]


class _Stopped(Exception):
    """Ctrl-C between two validation batches."""


def views(images: jax.Array, tta: TTA) -> list[jax.Array]:
    """The pictures whose logits are averaged, each (N, H, W, C).

    Args:
        images: (N, H, W, C).
        tta: ``LR``: the pictures and their mirror images. ``SHIFT_1PX``: the pictures and their
            shifts by one pixel up, down, left and right, the uncovered edge repeated.
    """
    if tta is TTA.LR:
        return [images, images[:, :, ::-1]]
    if tta is TTA.SHIFT_1PX:
        _, height, width, _ = images.shape
        padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
        corners = ((1, 1), (2, 1), (0, 1), (1, 2), (1, 0))
        return [padded[:, y : y + height, x : x + width] for y, x in corners]
    return [images]


class Evaluator:
    """Scores of a program's states."""

    def __init__(self, program: Program, tta: TTA = TTA.DISABLED) -> None:
        self.program = program
        self.tta = tta

    def scores(
        self,
        state: ArrayState,
        batches: Iterable[Batch],
        *,
        ema: bool = False,
        stop: StopOnInterrupt | None = None,
    ) -> Scores | None:
        """Means over all batches.

        Args:
            state: Read, not donated.
            batches: In the program's validation shapes.
            ema: Use the moving average of the weights.
            stop: Asked between batches.

        Returns:
            The scores; None if ``stop`` ended it, as part of a set is no score of it.
        """
        try:
            if self.tta is TTA.DISABLED:
                found = self.program.evaluate(state, _until(stop, batches), ema=ema)
                return Scores(found["loss"], found["top1"], found["top5"], found["count"])
            return self._averaged(state, _until(stop, batches), ema)
        except _Stopped:
            return None

    def _averaged(self, state: ArrayState, batches: Iterable[Batch], ema: bool) -> Scores:
        program = self.program
        params = program.ema_params(state) if ema else program.params(state)
        weights = jax.tree.map(jnp.asarray, (params, program.statistics(state)))
        sums = ScoreSums()
        for images, labels in batches:
            sums.add(self._function(*weights, images, labels))
        return sums.scores()

    @cached_property
    def _function(self) -> Any:
        return jax.jit(partial(_score_views, self.program, self.tta))

    def __repr__(self) -> str:
        return f"Evaluator({self.program!r}, {self.tta})"


def _score_views(
    program: Program, tta: TTA, params: Any, statistics: Any, images: jax.Array, labels: jax.Array
) -> dict[str, jax.Array]:
    x = images.astype(program.config.precision.compute.numpy)
    outputs = [program.apply(params, view, statistics) for view in views(x, tta)]
    logits = sum(o.astype(jnp.promote_types(o.dtype, jnp.float32)) for o in outputs) / len(outputs)
    smoothing = program.config.loss.label_smoothing
    return {
        "loss": softmax_cross_entropy(logits, labels, label_smoothing=smoothing),
        "top1": jnp.mean(top_k_hits(logits, labels, 1), dtype=jnp.float32),
        "top5": jnp.mean(top_k_hits(logits, labels, 5), dtype=jnp.float32),
        "count": jnp.int32(labels.shape[0]),
    }


def _until(stop: StopOnInterrupt | None, batches: Iterable[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if stop is not None and stop.requested:
            raise _Stopped
        yield batch
