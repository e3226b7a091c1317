"""One factory per primitive layer."""

from __future__ import annotations

from renaissance.graph.blueprint.checked import factory
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.params import (
    Activation,
    BatchNorm,
    Conv,
    ConvDw,
    Dropout,
    Empty,
    Fc,
    Flatten,
    Gap,
    GroupConv,
    Pool,
)


@factory
def conv(out: int, k: int, s: int = 1, p: int = 0) -> Layer:
    """2-D convolution over an NHWC map, without bias.

    Args:
        out: Number of filters, the output channels.
        k: Height and width of a filter.
        s: Stride.
        p: Zero padding on every side. The output height is ``(H + 2p - k) // s + 1``.
    """
    return Layer("conv", Conv(out, k, s, p))


@factory
def conv_dw(k: int, s: int = 1, p: int = 0) -> Layer:
    """Depthwise convolution: every channel has one ``k`` x ``k`` filter of its own."""
    return Layer("conv_dw", ConvDw(k, s, p))


@factory
def group_conv(out: int, groups: int, k: int, s: int = 1, p: int = 0) -> Layer:
    """Grouped convolution; ``groups`` divides the input and the output channels."""
    return Layer("group_conv", GroupConv(out, groups, k, s, p))


@factory
def bn(momentum: float = 0.1, eps: float = 1e-5) -> Layer:
    """Batch normalisation over all but the channels (Ioffe and Szegedy 2015).

    Args:
        momentum: Weight of this batch in the running statistics.
        eps: Added to the variance.
    """
    return Layer("bn", BatchNorm(momentum, eps))


@factory
def relu() -> Layer:
    """max(x, 0)."""
    return Layer("relu", Activation())


@factory
def relu6() -> Layer:
    """min(max(x, 0), 6)."""
    return Layer("relu6", Activation())


@factory
def leaky_relu() -> Layer:
    """x where positive, 0.01 x elsewhere."""
    return Layer("leaky_relu", Activation())


@factory
def silu() -> Layer:
    """x times sigmoid(x)."""
    return Layer("silu", Activation())


@factory
def hardswish() -> Layer:
    """x times relu6(x + 3) / 6."""
    return Layer("hardswish", Activation())


@factory
def elu() -> Layer:
    """x where positive, exp(x) - 1 elsewhere."""
    return Layer("elu", Activation())


@factory
def sigmoid() -> Layer:
    """1 / (1 + exp(-x))."""
    return Layer("sigmoid", Activation())


@factory
def tanh_act() -> Layer:
    """Hyperbolic tangent."""
    return Layer("tanh", Activation())


@factory
def dropout(p: float) -> Layer:
    """Inverted dropout: zero an element with probability ``p``, scale the others by 1/(1-p)."""
    return Layer("dropout", Dropout(p))


@factory
def maxpool(k: int, s: int, p: int) -> Layer:
    """Largest value of every ``k`` x ``k`` window; the padding never wins."""
    return Layer("maxpool", Pool(k, s, p))


@factory
def avgpool(k: int, s: int, p: int) -> Layer:
    """Mean over the real pixels of every ``k`` x ``k`` window; padding is not counted."""
    return Layer("avgpool", Pool(k, s, p))


@factory
def gap() -> Layer:
    """Global average pool: the mean of every channel."""
    return Layer("gap", Gap())


@factory
def fc(out: int, bias: bool = True) -> Layer:
    """Fully connected layer. A map is flattened before it."""
    return Layer("fc", Fc(out, bias))


@factory
def flatten(start_dim: int = 1) -> Layer:
    """Fold the axes from ``start_dim`` on into one vector, in the order H, W, C."""
    return Layer("flatten", Flatten(start_dim))


@factory
def identity() -> Layer:
    """Hand the input on; the shortcut of a residual block."""
    return Layer("identity", Empty())


@factory
def channel_padding() -> Layer:
    """Pad the channels with zeros up to a multiple of 8."""
    return Layer("channel_padding", Empty())
