"""Element-wise layers without weights: activations and dropout."""

from __future__ import annotations

from renaissance.core.types import Shape
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Activation, Dropout

ACTIVATIONS = (
    "relu",
    "relu6",
    "leaky_relu",
    "silu",
    "hardswish",
    "elu",
    "sigmoid",
    "tanh",
)


def _same_shape(params: Activation | Dropout, shape: Shape) -> Shape:
    return shape


DESCRIPTORS = (
    *(LayerDescriptor(kind, Activation, _same_shape) for kind in ACTIVATIONS),
    LayerDescriptor("dropout", Dropout, _same_shape),
)
