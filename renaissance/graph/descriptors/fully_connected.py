"""Fully connected layer: weight ``(out, in)``, optional bias. A map is read as one long vector."""

from __future__ import annotations

from renaissance.core.types import Shape, WeightGroup
from renaissance.graph.layer import ArchLayer, LayerDescriptor, WeightSpec
from renaissance.graph.params import Fc


def _features(shape: Shape) -> int:
    return shape.h * shape.w * shape.c


def _fc_shape(params: Fc, shape: Shape) -> Shape:
    return Shape(shape.n, 1, 1, params.out)


def _fc_weights(layer: ArchLayer) -> tuple[WeightSpec, ...]:
    out = layer.params.out
    weight = WeightSpec("weight", (out, _features(layer.in_shape)), WeightGroup.FC_WEIGHT)
    bias = WeightSpec("bias", (out,), WeightGroup.FC_BIAS)
    return (weight, bias) if layer.params.bias else (weight,)


def _fc_flops(layer: ArchLayer) -> int:
    return 2 * _features(layer.in_shape) * layer.out_shape.c


DESCRIPTORS = (LayerDescriptor("fc", Fc, _fc_shape, weights=_fc_weights, flops=_fc_flops),)
