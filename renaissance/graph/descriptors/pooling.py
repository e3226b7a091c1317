"""Maximum, average and global average pooling."""

from __future__ import annotations

from renaissance.core.types import Shape
from renaissance.graph.descriptors.convolution import window_shape
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Gap, Pool


def pool_shape(params: Pool, shape: Shape) -> Shape:
    """Output map of a pooling window."""
    return window_shape(shape, params.kernel, params.stride, params.pad, shape.c)


def _gap_shape(params: Gap, shape: Shape) -> Shape:
    return Shape(shape.n, 1, 1, shape.c)


DESCRIPTORS = (
    LayerDescriptor("maxpool", Pool, pool_shape),
    LayerDescriptor("avgpool", Pool, pool_shape),
    LayerDescriptor("gap", Gap, _gap_shape),
)
