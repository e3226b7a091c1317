"""Training calls: one step on a batch, or many on a stack of batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from renaissance.core.types import Shape
from renaissance.lowering.state import ArrayState
from renaissance.program import Program
from renaissance.task.source import BatchSource, StackedSource, picture_dtype

Batch = tuple[Any, Any]


class TrainingCall(NamedTuple):
    """What an executable of the training is compiled for.

    Attributes:
        steps: Batches it takes; 1: a batch without a leading axis.
        shape: Of one batch.
    """

    steps: int
    shape: Shape

    def blank(self, source: BatchSource) -> Batch:
        """Pictures of zeros with labels 0, of the type the source's batches have."""
        lead = (self.steps,) if self.steps > 1 else ()
        images, labels = (*lead, *self.shape), (*lead, self.shape[0])
        if lead:  # made where it is needed: a stack can be large
            return jnp.zeros(images, picture_dtype(source)), jnp.zeros(labels, jnp.int32)
        return np.zeros(images, picture_dtype(source)), np.zeros(labels, np.int32)


def training_calls(
    program: Program, source: BatchSource, *, stacked: bool = True
) -> list[TrainingCall]:
    """Every call an epoch of ``source`` makes, each once.

    Args:
        program: Compiled for the source's batches.
        source: Training batches.
        stacked: Whether stacks are taken from a source that has them.
    """
    singles = [TrainingCall(1, Shape(*s)) for s in program.config.shapes(training=True)]
    if not (stacked and isinstance(source, StackedSource)):
        return singles
    full = Shape(source.batch_size, *source.image_shape)
    whole = len(source.dataset) // source.batch_size
    begins = np.cumsum((0, *source.stack_sizes))  # a single full batch is one among the whole ones
    sizes = {s for s, b in zip(source.stack_sizes, begins, strict=False) if b < whole}
    return [TrainingCall(size, full) for size in sorted(sizes, reverse=True)] + [
        call for call in singles if call.shape != full
    ]


def train_on(program: Program, state: ArrayState, batch: Batch) -> tuple[ArrayState, Any]:
    """Train on a batch or on a stack of batches; ``state`` is donated."""
    if np.ndim(batch[0]) == 5:
        return program.train_steps(state, batch)
    return program.train_step(state, batch)


def steps_in(batch: Batch) -> int:
    """How many training steps a batch or a stack makes."""
    return len(batch[0]) if np.ndim(batch[0]) == 5 else 1
