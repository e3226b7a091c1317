"""Layers that only change how a map is read: flatten, identity, channel padding."""

from __future__ import annotations

from renaissance.core.types import Shape
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Empty, Flatten

CHANNEL_MULTIPLE = 8


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below ``value``."""
    return -(-value // multiple) * multiple


def _flatten_shape(params: Flatten, shape: Shape) -> Shape:
    n, h, w, c = shape
    match params.start_dim:
        case 1:
            return Shape(n, 1, 1, h * w * c)
        case 2:
            return Shape(n, h, 1, w * c)
    return shape


def _same_shape(params: Empty, shape: Shape) -> Shape:
    return shape


def _padded_shape(params: Empty, shape: Shape) -> Shape:
    return shape._replace(c=round_up(shape.c, CHANNEL_MULTIPLE))


DESCRIPTORS = (
    LayerDescriptor("flatten", Flatten, _flatten_shape),
    LayerDescriptor("identity", Empty, _same_shape),
    LayerDescriptor("channel_padding", Empty, _padded_shape),
)
