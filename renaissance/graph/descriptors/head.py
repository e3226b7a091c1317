"""The head of a classifier: softmax and cross entropy over the class scores."""

from __future__ import annotations

from renaissance.core.errors import ShapeError, fail
from renaissance.core.types import Shape
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Head

HEAD = "softmax_cross_entropy"


def _head_shape(params: Head, shape: Shape) -> Shape:
    if shape.is_spatial:
        expected = f"one vector of {params.num_classes} class scores; end with gap() or fc(...)"
        fail(ShapeError, "the network's output", str(shape), expected)
    if shape.c != params.num_classes:
        fail(ShapeError, "the number of class scores", shape.c, f"num_classes={params.num_classes}")
    return shape


DESCRIPTORS = (LayerDescriptor(HEAD, Head, _head_shape),)
