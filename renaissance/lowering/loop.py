"""Several train steps of the XLA lowering as one loop on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from renaissance.core.types import GraphId
from renaissance.lowering.recipe import Recipe
from renaissance.lowering.state import ArrayState
from renaissance.lowering.step import train_step


def train_steps(
    recipe: Recipe,
    order: Sequence[GraphId],
    state: ArrayState,
    images: jax.Array,
    labels: jax.Array,
    indices: jax.Array | None = None,
    values: jax.Array | None = None,
) -> tuple[ArrayState, jax.Array]:
    """Several training steps as one loop on the device.

    Args:
        recipe: As in :func:`train_step`.
        order: Likewise.
        state: The state before.
        images: (S, N, H, W, C); with ``indices`` a data set (M, H, W, C).
        labels: (S, N) int32; with ``indices`` (M,).
        indices: (S, N) int32, the rows of the data set that each batch takes.
        values: (256,), what the bytes of ``images`` stand for.

    Returns:
        The state after, and metrics (S, 6).
    """

    def body(carry: Any, batch: Any) -> tuple[Any, jax.Array]:
        if indices is not None:
            batch = rows_of(images, labels, indices, values, batch)
        state, metrics = train_step(recipe, order, unpack(carry), *batch)
        return pack(state), metrics

    pack, unpack = scalar_packing(state)
    over = (images, labels) if indices is None else jnp.arange(indices.shape[0])
    carry, metrics = jax.lax.scan(body, pack(state), over)
    return unpack(carry), metrics


def rows_of(
    images: jax.Array,
    labels: jax.Array,
    indices: jax.Array,
    values: jax.Array | None = None,
    batch: jax.Array | int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Batch number ``batch`` of a data set's rows; arguments as in :func:`train_steps`."""
    rows = indices[batch]
    taken = images[rows]
    return taken if values is None else values[taken.astype(jnp.int32)], labels[rows]


def scalar_packing(
    state: ArrayState,
) -> tuple[Callable[[ArrayState], Any], Callable[[Any], ArrayState]]:
    """Carry a loop's scalars as one vector per element type.

    A scalar of its own in the carry costs a launch per iteration, which a small network feels.

    Returns:
        ``pack(state) -> carry`` and its inverse.
    """
    leaves, structure = jax.tree.flatten(state)
    scalars: dict[Any, list[int]] = {}
    for index, leaf in enumerate(leaves):
        if leaf.ndim == 0:
            scalars.setdefault(leaf.dtype, []).append(index)

    def pack(state: ArrayState) -> Any:
        leaves = jax.tree.leaves(state)
        arrays = [leaf for leaf in leaves if leaf.ndim]
        return arrays, [jnp.stack([leaves[i] for i in group]) for group in scalars.values()]

    def unpack(carry: Any) -> ArrayState:
        arrays, vectors = carry
        place = {
            i: vector[at]
            for group, vector in zip(scalars.values(), vectors, strict=True)
            for at, i in enumerate(group)
        }
        rest = iter(arrays)
        return jax.tree.unflatten(
            structure, [place[i] if i in place else next(rest) for i in range(len(leaves))]
        )

    return pack, unpack
