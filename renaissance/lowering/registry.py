"""The table of lowerings: what each layer kind computes, looked up by the kind's name.

Only primitive kinds are in it: the reference runs a merged layer through its parts. The residual
markers are not, since they work on the network's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from renaissance.core.errors import fail
from renaissance.graph.layer import ArchLayer

Tensors = Mapping[str, jax.Array]


@dataclass(frozen=True, slots=True)
class TrainContext:
    """What a training pass knows besides arrays of the layer.

    Attributes:
        seed: 64-bit key of the run: an integer or two 32-bit words, low word first.
        step: Index of the training step; changes every step, skipped ones included.
        layer_index: Index of the layer among the plan's primitives.
        first_sample: Index in the whole batch of the first row, where a batch is split.
    """

    seed: Any
    step: Any
    layer_index: int = 0
    first_sample: Any = 0


Train = Callable[
    [ArchLayer, Tensors, jax.Array, TrainContext], tuple[jax.Array, dict[str, jax.Array]]
]
Infer = Callable[[ArchLayer, Tensors, jax.Array], jax.Array]


@dataclass(frozen=True, slots=True)
class LayerLowering:
    """How a layer kind is computed on ordinary arrays.

    Attributes:
        kind: The kind's name, as its descriptor has it.
        train: ``(layer, tensors, x, context) -> (y, new_statistics)``. ``tensors`` holds the
            layer's weights and running statistics under their local names (``"weight"``,
            ``"mean"``); ``new_statistics`` the statistics after this batch, empty for a kind
            without any.
            Differentiable with respect to ``x`` and the weights.
        infer: ``(layer, tensors, x) -> y`` with running statistics and no randomness.
    """

    kind: str
    train: Train
    infer: Infer


_LOWERINGS: dict[str, LayerLowering] = {}


def register_lowering(lowering: LayerLowering) -> LayerLowering:
    """Enter the lowering of a kind, and return it.

    Args:
        lowering: Its ``kind`` must be new to the table, or the entry equal to the one there.

    Returns:
        ``lowering``.

    Raises:
        TypeError: not a :class:`LayerLowering`.
        ValueError: the kind has another lowering already.
    """
    if not isinstance(lowering, LayerLowering):
        fail(TypeError, "lowering", lowering, "a LayerLowering")
    known = _LOWERINGS.setdefault(lowering.kind, lowering)
    if known != lowering:
        fail(ValueError, "kind of lowering", lowering.kind, "a kind without a lowering yet")
    return lowering


def has_lowering(kind: str) -> bool:
    """Whether the table has an entry for a kind."""
    return kind in _LOWERINGS


def lowering_of(kind: str) -> LayerLowering:
    """The lowering of a kind.

    Args:
        kind: Name of a primitive kind.

    Returns:
        Its entry.

    Raises:
        ValueError: no lowering is registered; the message lists the known kinds.
    """
    if kind not in _LOWERINGS:
        fail(ValueError, "kind of layer", kind, "one of " + ", ".join(sorted(_LOWERINGS)))
    return _LOWERINGS[kind]


def lowered_kinds() -> tuple[str, ...]:
    """Names of all kinds in the table, in order of registration."""
    return tuple(_LOWERINGS)
