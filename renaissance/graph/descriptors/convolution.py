"""Convolutions: full, depthwise, grouped. NHWC maps, KRSC filters, no bias."""

from __future__ import annotations

from renaissance.core.errors import ShapeError, fail
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph.layer import ArchLayer, LayerDescriptor, WeightSpec
from renaissance.graph.params import Conv, ConvDw, GroupConv


def window_shape(shape: Shape, kernel: int, stride: int, pad: int, out: int) -> Shape:
    """Map that a sliding window leaves: ``floor((H + 2 pad - kernel) / stride) + 1``.

    Raises:
        ShapeError: The window does not fit once into the padded map.
    """
    height = (shape.h + 2 * pad - kernel) // stride + 1
    width = (shape.w + 2 * pad - kernel) // stride + 1
    for axis, before, after in (("height", shape.h, height), ("width", shape.w, width)):
        if after < 1:
            expected = f"at most the padded {axis}: {before} + 2 * {pad} = {before + 2 * pad}"
            fail(ShapeError, f"the output {axis} would be {after}: the window", kernel, expected)
    return Shape(shape.n, height, width, out)


def conv_shape(params: Conv, shape: Shape) -> Shape:
    """Output map of a convolution."""
    return window_shape(shape, params.kernel, params.stride, params.pad, params.out)


def _conv_dw_shape(params: ConvDw, shape: Shape) -> Shape:
    return window_shape(shape, params.kernel, params.stride, params.pad, shape.c)


def _group_conv_shape(params: GroupConv, shape: Shape) -> Shape:
    if shape.c % params.groups:
        expected = f"a multiple of groups={params.groups}"
        fail(ShapeError, "the number of input channels", shape.c, expected)
    return window_shape(shape, params.kernel, params.stride, params.pad, params.out)


def _channels_per_filter(layer: ArchLayer) -> int:
    match layer.params:
        case ConvDw():
            return 1
        case GroupConv(groups=groups):
            return layer.in_shape.c // groups
    return layer.in_shape.c


def _filters(layer: ArchLayer) -> tuple[WeightSpec, ...]:
    kernel = layer.params.kernel
    shape = (layer.out_shape.c, kernel, kernel, _channels_per_filter(layer))
    group = WeightGroup.FIRST_CONV if layer.is_first_layer else WeightGroup.DEEP_CONV
    return (WeightSpec("weight", shape, group),)


def _flops(layer: ArchLayer) -> int:
    per_output = layer.params.kernel**2 * _channels_per_filter(layer)
    return 2 * layer.out_shape.size * per_output


DESCRIPTORS = (
    LayerDescriptor("conv", Conv, conv_shape, weights=_filters, flops=_flops),
    LayerDescriptor("conv_dw", ConvDw, _conv_dw_shape, weights=_filters, flops=_flops),
    LayerDescriptor("group_conv", GroupConv, _group_conv_shape, weights=_filters, flops=_flops),
)
