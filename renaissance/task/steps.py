"""Training calls: one step on a batch, or many on batches that they make from rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from renaissance.core.types import Shape
from renaissance.data.device_pipeline import Rows
from renaissance.lowering.state import ArrayState
from renaissance.program import Program
from renaissance.task.source import BatchSource, StackedSource, picture_dtype

Batch = tuple[Any, Any] | Rows


class TrainingCall(NamedTuple):
    """What an executable of the training is compiled for.

    Attributes:
        steps: Batches it takes.
        shape: Of one batch.
        makes: Whether it makes its batches from the rows of a data set.
    """

    steps: int
    shape: Shape
    makes: bool = False

    def blank(self, source: BatchSource) -> Batch:
        """Something to compile with: pictures of zeros with labels 0, or rows."""
        if self.makes:
            assert isinstance(source, StackedSource)
            return source.blank(self.steps, self.shape.n)
        return blank_batch(self.shape, source)


def blank_batch(shape: Shape, source: BatchSource) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of zeros with labels 0, of the type the source's batches have."""
    return np.zeros(shape, picture_dtype(source)), np.zeros(shape.n, np.int32)


def training_calls(
    program: Program, source: BatchSource, *, stacked: bool = True
) -> list[TrainingCall]:
    """Every call an epoch of ``source`` makes, each once.

    Args:
        program: Compiled for the source's batches.
        source: Training batches.
        stacked: Whether calls make their batches where the source has the rows for it.
    """
    singles = [TrainingCall(1, Shape(*s)) for s in program.config.shapes(training=True)]
    if not (stacked and isinstance(source, StackedSource)):
        return singles
    full = Shape(source.batch_size, *source.image_shape)
    whole = len(source.dataset) // source.batch_size
    begins = np.cumsum((0, *source.stack_sizes))  # a single full batch is one among the whole ones
    sizes = {s for s, b in zip(source.stack_sizes, begins, strict=False) if b < whole}
    return [TrainingCall(size, full, True) for size in sorted(sizes, reverse=True)] + [
        call._replace(makes=True) for call in singles if call.shape != full
    ]


def train_on(program: Program, state: ArrayState, batch: Batch) -> tuple[ArrayState, Any]:
    """Train on a batch, or on those made from rows; ``state`` is donated."""
    if isinstance(batch, Rows) and batch.ids.ndim == 2:
        return program.train_steps(state, batch)
    return program.train_step(state, batch)


def steps_in(batch: Batch) -> int:
    """How many training steps a batch or rows make."""
    return len(batch.ids) if isinstance(batch, Rows) and batch.ids.ndim == 2 else 1
