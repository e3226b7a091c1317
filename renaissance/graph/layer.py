"""Records of the front half: what a layer is once the tree is flat, and what its kind must declare.

A kind is described once, by one immutable :class:`LayerDescriptor`. Its lowering is registered
beside it (see :mod:`renaissance.lowering.registry`); nothing else in the package knows it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from renaissance.core.types import Shape, WeightGroup


@dataclass(frozen=True, slots=True)
class ArchLayer:
    """One entry of an :class:`~renaissance.graph.arch_plan.ArchPlan`.

    Attributes:
        kind: Registered kind, such as ``"conv"``, ``"bn2d"``, ``"cbr"``, ``"add2_start"``.
        params: The kind's frozen parameter record.
        name: Unique in the plan: the kind and a running number, ``"conv1"``. Primitive names do not
            depend on fusion, so a tensor is called the same in every form of the plan.
        in_shape: Input of one sample, ``n == 1``.
        out_shape: Output of one sample, ``n == 1``.
        is_first_layer: Whether it is the first layer with weights (its input needs no gradient).
        source_id: Index of the blueprint node it came from, in traversal order.
        parts: For a merged kind, the primitive layers it stands for, in execution order, residual
            markers included; empty for a primitive.
    """

    kind: str
    params: Any
    name: str
    in_shape: Shape
    out_shape: Shape
    is_first_layer: bool = False
    source_id: int = 0
    parts: tuple[ArchLayer, ...] = ()

    def primitives(self) -> Iterator[ArchLayer]:
        """The primitive layers this one stands for; itself when it is one."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.primitives()


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A trainable tensor of a primitive layer.

    Attributes:
        name: Local name, ``"weight"`` or ``"bias"``; the full name is ``f"{layer.name}.{name}"``.
        shape: Logical shape: KRSC for filters (C is per group), ``(out, in)`` for fc, ``(C,)``.
        group: Decides the regions of the tensor and its twins.
    """

    name: str
    shape: tuple[int, ...]
    group: WeightGroup


@dataclass(frozen=True, slots=True)
class StatisticSpec:
    """A running statistic of a primitive layer: ``"mean"`` or ``"var"``, fp32, shape ``(C,)``."""

    name: str
    shape: tuple[int, ...]


def _no_weights(layer: ArchLayer) -> tuple[WeightSpec, ...]:
    return ()


def _no_statistics(layer: ArchLayer) -> tuple[StatisticSpec, ...]:
    return ()


def _no_flops(layer: ArchLayer) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class LayerDescriptor:
    """Everything the front half knows of one layer kind.

    Attributes:
        kind: The kind's name.
        params: Type of its frozen parameter record.
        infer_shape: ``(params, in_shape) -> out_shape``; raises
            :class:`~renaissance.core.errors.ShapeError` when the layer cannot take the shape.
        weights: Trainable tensors of a layer of this kind.
        statistics: Running statistics of a layer of this kind.
        flops: Multiply-adds of one sample's forward pass, counted as two operations each.
    """

    kind: str
    params: type
    infer_shape: Callable[[Any, Shape], Shape]
    weights: Callable[[ArchLayer], tuple[WeightSpec, ...]] = _no_weights
    statistics: Callable[[ArchLayer], tuple[StatisticSpec, ...]] = _no_statistics
    flops: Callable[[ArchLayer], int] = _no_flops
