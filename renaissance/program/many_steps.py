"""Many train steps of the fused lowering in one executable: a loop over a chain, or one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from renaissance.core.errors import fail
from renaissance.core.types import DType
from renaissance.graph.compiler import CompiledGraph
from renaissance.lowering.calls.in_place import Banks, InPlaceCall, PlanLaunches, Workspace, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import FusedPass, empty_table, train_pass
from renaissance.lowering.loop import rows_of
from renaissance.program.persistent import choose_persistent


@dataclass(frozen=True)
class Samples:
    """What many steps train on: batches one after the other, or rows of a data set.

    Attributes:
        images: (S, N, H, W, C) in fp32 or fp16; with ``indices`` (M, H, W, C), or bytes.
        labels: int32 (S, N); with ``indices`` (M,).
        indices: int32 (S, N): the rows of the data set that each batch takes.
        values: (256,) what the bytes of ``images`` stand for.
    """

    images: Any
    labels: Any
    indices: Any = None
    values: Any = None

    @property
    def steps(self) -> int:
        """Batches."""
        return (self.images if self.indices is None else self.indices).shape[0]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Of the images of one batch."""
        if self.indices is None:
            return tuple(self.images.shape[1:])
        return (self.indices.shape[1], *self.images.shape[1:])

    @property
    def dtype(self) -> DType:
        """Type of a batch's images as the chain is given them."""
        return dtype_of(self.images if self.values is None else self.values)

    @property
    def arguments(self) -> dict[str, jax.Array]:
        """The arrays there are, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def batch(self, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A batch of rows, as a stack of one."""
        return tuple(array[None] for array in rows_of(**self.arguments, batch=i))  # type: ignore


class ManySteps:
    """Traces many steps.

    Args:
        loop: As in :class:`~renaissance.program.config.ProgramConfig`.
        graph: The network's graph and plans.
        scene: What one batch's lowering looks things up in.
        launches: The kernels of a call.
    """

    def __init__(self, loop: str, graph: CompiledGraph, scene: Scene, launches: PlanLaunches):
        self.loop, self.graph, self.scene, self.launches = loop, graph, scene, launches
        self.workspace = 0
        """Bytes that the traced steps need beside the banks."""

    def __call__(self, banks: Banks, samples: Samples) -> tuple[Banks, jax.Array]:
        """The banks after all steps, and a row of the table for each."""
        fused = train_pass(self.graph, self.scene)
        call = choose_persistent(
            self.loop,
            self.scene,
            fused.calls,
            samples.steps,
            str(samples.images.dtype),
            self.launches,
            indexed=samples.indices is not None,
        )
        if call is not None:
            return self.one_launch(call, banks, samples)
        return self._chain(fused, banks, samples)

    def one_launch(
        self, call: InPlaceCall, banks: Banks, samples: Samples
    ) -> tuple[Banks, jax.Array]:
        """All steps by one call; a row of the table for each."""
        self.workspace += sum(o.nbytes for o in call.operands if isinstance(o, Workspace))
        given = {**samples.arguments, "table": empty_table(samples.steps)}
        if samples.values is not None:
            given["values"] = samples.values.astype(jnp.float16)
        banks, after = thread([call], banks, given, self.launches)
        return banks, after["table"]

    def _chain(self, fused: FusedPass, banks: Banks, samples: Samples) -> tuple[Banks, jax.Array]:
        zero = jnp.zeros((), jnp.int32)

        def stacked(i: jax.Array, banks: Banks, table: jax.Array) -> tuple[Banks, jax.Array]:
            return fused.run(banks, table, samples.images, samples.labels, i, self.launches)

        def indexed(i: jax.Array, banks: Banks, table: jax.Array) -> tuple[Banks, jax.Array]:
            given = (empty_table(1), *samples.batch(i), zero)
            banks, row = fused.run(banks, *given, self.launches)
            return banks, jax.lax.dynamic_update_slice(table, row, (i, 0))

        if samples.indices is None:
            return loop(stacked, banks, samples.steps)
        # a gathered batch: its bytes, and its values in a wide type and in that of the slot
        self.workspace = 4 * 4 * prod(self.scene.memory.shape_id)
        return loop(indexed, banks, samples.steps)


Step = Callable[[jax.Array, Banks, jax.Array], tuple[Banks, jax.Array]]


def loop(step: Step, banks: Banks, steps: int) -> tuple[Banks, jax.Array]:
    """Steps one after the other, inside one executable.

    Args:
        step: From its number, the banks and the table to the banks and the table.
        banks: Given up.
        steps: How many.

    Returns:
        The banks after all steps, and a row of the table for each.
    """
    names = tuple(banks)  # an enumeration's members do not sort, as a loop's keys must

    def body(i: jax.Array, carry: tuple[tuple[jax.Array, ...], jax.Array]) -> Any:
        banks, table = step(i, dict(zip(names, carry[0], strict=True)), carry[1])
        return tuple(banks[name] for name in names), table

    start = (tuple(banks.values()), empty_table(steps))
    arrays, table = jax.lax.fori_loop(0, steps, body, start)
    return dict(zip(names, arrays, strict=True)), table


def dtype_of(images: jax.Array) -> DType:
    """The type of images from outside.

    Raises:
        TypeError: it is neither fp32 nor fp16.
    """
    if str(images.dtype) not in ("float32", "float16"):
        fail(TypeError, "dtype of images", str(images.dtype), "float32 or float16")
    return DType(str(images.dtype))
