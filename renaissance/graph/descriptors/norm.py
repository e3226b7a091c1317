"""Batch normalisation over vectors and over maps.

A blueprint says ``bn``; a plan says ``bn1d`` after flatten or fc, ``bn2d`` otherwise.
"""

from __future__ import annotations

from renaissance.core.errors import ShapeError, fail
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph.layer import ArchLayer, LayerDescriptor, StatisticSpec, WeightSpec
from renaissance.graph.params import BatchNorm


def _same_shape(params: BatchNorm, shape: Shape) -> Shape:
    return shape


def _vector_shape(params: BatchNorm, shape: Shape) -> Shape:
    if shape.is_spatial:
        fail(ShapeError, "the input of bn1d", str(shape), "a vector, 1x1x1xC")
    return shape


def _scale_and_shift(layer: ArchLayer) -> tuple[WeightSpec, ...]:
    shape = (layer.in_shape.c,)
    return (
        WeightSpec("weight", shape, WeightGroup.BN_WEIGHT),
        WeightSpec("bias", shape, WeightGroup.BN_BIAS),
    )


def _running(layer: ArchLayer) -> tuple[StatisticSpec, ...]:
    shape = (layer.in_shape.c,)
    return StatisticSpec("mean", shape), StatisticSpec("var", shape)


DESCRIPTORS = tuple(
    LayerDescriptor(kind, BatchNorm, shape, weights=_scale_and_shift, statistics=_running)
    for kind, shape in (("bn", _same_shape), ("bn1d", _vector_shape), ("bn2d", _same_shape))
)
