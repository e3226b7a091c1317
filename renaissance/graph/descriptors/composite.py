"""Units a blueprint may name as one layer, and the smaller layers each stands for.

The rules are written in the model language itself, so a unit and the same layers written out by
hand become the same plan.
"""

from __future__ import annotations

from dataclasses import replace

from renaissance.core.types import Shape
from renaissance.graph.blueprint.blocks import conv_bn_relu
from renaissance.graph.blueprint.composition import add2, seq
from renaissance.graph.blueprint.factories import (
    bn,
    conv,
    conv_dw,
    fc,
    gap,
    identity,
    maxpool,
    relu,
    relu6,
)
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.descriptors.convolution import window_shape
from renaissance.graph.descriptors.merged import flops_of_parts
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Block, ConvBnRelu, ConvBnReluPool, GapFc, MbConv
from renaissance.graph.registry import LayerKind

# --- expansion rules: (params, in_shape) -> Layer ------------------------------------------------


def expand_conv_bn_relu(p: ConvBnRelu, in_shape: Shape) -> Layer:
    """Convolution, batch norm, ReLU."""
    return seq(conv(p.out, p.kernel, p.stride, p.pad), bn(p.momentum, p.eps), relu())


def expand_conv_bn_relu_pool(p: ConvBnReluPool, in_shape: Shape) -> Layer:
    """Convolution, batch norm, ReLU, max-pool."""
    return seq(
        conv(p.out, p.conv_kernel, p.conv_stride, p.conv_pad),
        bn(p.momentum, p.eps),
        relu(),
        maxpool(p.pool_kernel, p.pool_stride, p.pool_pad),
    )


def expand_gap_fc(p: GapFc, in_shape: Shape) -> Layer:
    """Global average pool, fully connected."""
    return seq(gap(), fc(p.out, p.bias))


def expand_block(p: Block, in_shape: Shape) -> Layer:
    """The residual block of a style, with a projection only where the shapes demand it."""
    stride, expand = p.style.stride, p.style.expand
    if expand is not None:
        return inverted_residual(expand, p.out, stride, in_shape.c)
    shortcut = projection(p.out, stride, in_shape.c)
    main = basic(p.out, stride) if p.mid is None else bottleneck(p.mid, p.out, stride)
    return seq(add2(shortcut, main), relu())


def expand_mbconv(p: MbConv, in_shape: Shape) -> Layer:
    """The inverted residual of an expansion and a stride."""
    return inverted_residual(p.expand, p.out, p.stride, in_shape.c)


# --- the paths of the residual blocks ------------------------------------------------------------


def projection(out: int, stride: int, width: int) -> Layer:
    """Shortcut of a ResNet block: identity while the shape stays, else a strided 1x1."""
    return identity() if stride == 1 and width == out else seq(conv(out, 1, stride), bn())


def bottleneck(mid: int, out: int, stride: int) -> Layer:
    """Main path 1x1 - 3x3 - 1x1 (He et al. 2015), the stride on the 3x3."""
    return seq(
        conv_bn_relu(mid, 1, 1, 0),
        conv_bn_relu(mid, 3, stride, 1),
        conv(out, 1),
        bn(),
    )


def basic(out: int, stride: int) -> Layer:
    """Main path 3x3 - 3x3 (He et al. 2015), the stride on the first."""
    return seq(conv_bn_relu(out, 3, stride, 1), conv(out, 3, 1, 1), bn())


def inverted_residual(expand: int, out: int, stride: int, width: int) -> Layer:
    """Widen, depthwise 3x3, narrow without activation (Sandler et al. 2018)."""
    widen = () if expand == 1 else (conv(expand * width, 1), bn(), relu6())
    main = seq(*widen, conv_dw(3, stride, 1), bn(), relu6(), conv(out, 1), bn())
    return add2(identity(), main) if stride == 1 and width == out else main


# --- descriptors ---------------------------------------------------------------------------------


def _unit_shape(p: ConvBnRelu, shape: Shape) -> Shape:
    return window_shape(shape, p.kernel, p.stride, p.pad, p.out)


def _pooled_unit_shape(p: ConvBnReluPool, shape: Shape) -> Shape:
    convolved = window_shape(shape, p.conv_kernel, p.conv_stride, p.conv_pad, p.out)
    return window_shape(convolved, p.pool_kernel, p.pool_stride, p.pool_pad, p.out)


def _gap_fc_shape(p: GapFc, shape: Shape) -> Shape:
    return Shape(shape.n, 1, 1, p.out)


def _block_shape(p: Block, shape: Shape) -> Shape:
    return window_shape(shape, 3, p.style.stride, 1, p.out)


def _mbconv_shape(p: MbConv, shape: Shape) -> Shape:
    return window_shape(shape, 3, p.stride, 1, p.out)


# A repeated block changes the shape once: the first copy downsamples and projects.


def _block_again(p: Block) -> Block:
    return replace(p, style=p.style.at_stride_one)


def _mbconv_again(p: MbConv) -> MbConv:
    return replace(p, stride=1)


KINDS = (
    LayerKind(
        LayerDescriptor("cbr", ConvBnRelu, _unit_shape, flops=flops_of_parts),
        expand_conv_bn_relu,
    ),
    LayerKind(
        LayerDescriptor("cbrp", ConvBnReluPool, _pooled_unit_shape, flops=flops_of_parts),
        expand_conv_bn_relu_pool,
    ),
    LayerKind(
        LayerDescriptor("gap_fc", GapFc, _gap_fc_shape, flops=flops_of_parts),
        expand_gap_fc,
    ),
    LayerKind(
        LayerDescriptor("block", Block, _block_shape),
        expand_block,
        repeated=_block_again,
    ),
    LayerKind(
        LayerDescriptor("mbconv", MbConv, _mbconv_shape),
        expand_mbconv,
        repeated=_mbconv_again,
    ),
)
