"""Units of several layers that a fused kernel can run as one."""

from __future__ import annotations

from typing import overload

from renaissance.core.errors import fail
from renaissance.graph.blueprint.checked import factory
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.params import (
    Block,
    BlockStyle,
    ConvBnRelu,
    ConvBnReluPool,
    GapFc,
    MbConv,
)

RESNET_1_3_1 = BlockStyle.RESNET_1_3_1
RESNET_1_3_1_DS = BlockStyle.RESNET_1_3_1_DS
RESNET_3_3 = BlockStyle.RESNET_3_3
RESNET_3_3_DS = BlockStyle.RESNET_3_3_DS
MB_E1_K3 = BlockStyle.MB_E1_K3
MB_E1_K3_DS = BlockStyle.MB_E1_K3_DS
MB_E6_K3 = BlockStyle.MB_E6_K3
MB_E6_K3_DS = BlockStyle.MB_E6_K3_DS


@factory
def cbr(out: int, k: int, s: int, p: int, momentum: float = 0.1, eps: float = 1e-5) -> Layer:
    """Convolution, batch norm, ReLU. Also called :func:`conv_bn_relu`."""
    return Layer("cbr", ConvBnRelu(out, k, s, p, momentum, eps))


conv_bn_relu = cbr


@factory
def cbrp(out: int, ck: int, cs: int, cp: int, pk: int, ps: int, pp: int) -> Layer:
    """Convolution (``ck``, ``cs``, ``cp``), batch norm, ReLU, max-pool (``pk``, ``ps``, ``pp``)."""
    return Layer("cbrp", ConvBnReluPool(out, ck, cs, cp, pk, ps, pp))


@factory
def gap_fc(out: int, bias: bool) -> Layer:
    """Global average pool and fully connected layer."""
    return Layer("gap_fc", GapFc(out, bias))


@overload
def block(mid: int, out: int, style: BlockStyle | str) -> Layer: ...


@overload
def block(out: int, style: BlockStyle | str) -> Layer: ...


def block(*args, **kwargs):  # type: ignore[no-untyped-def]
    """A residual block: ``block(mid, out, style)`` or ``block(out, style)``.

    Args:
        mid: Inner width, for the bottleneck styles ``RESNET_1_3_1[_DS]`` only.
        out: Output channels.
        style: ``RESNET_1_3_1`` bottleneck, ``RESNET_3_3`` basic, ``MB_E1_K3`` and ``MB_E6_K3``
            inverted residuals; each with ``_DS`` for stride 2. The style or its name.

    The shortcut is the identity where the shape stays; a ResNet block projects it where it does
    not, an inverted residual has none there.
    """
    count = len(args) + len(kwargs)
    fields = ("mid", "out", "style") if count == 3 else ("out", "style")
    given = dict(zip(fields, args, strict=False)) | kwargs
    if len(given) != count or set(given) != set(fields):
        shown = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
        expected = "block(mid, out, style) or block(out, style)"
        raise TypeError(f"block: got ({shown}); expected {expected}")
    return Layer("block", Block(given.get("mid"), given["out"], _style(given["style"])))


@factory
def mbconv(expand: int, out: int, stride: int) -> Layer:
    """Inverted residual with linear bottleneck and ReLU6 (Sandler et al. 2018).

    Args:
        expand: Hidden width over input width, 1 or 6.
        out: Output channels.
        stride: Of the depthwise convolution, 1 or 2.
    """
    return Layer("mbconv", MbConv(expand, out, stride))


def _style(value: BlockStyle | str) -> BlockStyle:
    if isinstance(value, BlockStyle):
        return value
    if isinstance(value, str) and value in BlockStyle.__members__:
        return BlockStyle[value]
    kind = ValueError if isinstance(value, str) else TypeError
    fail(kind, "block style", value, f"one of {', '.join(BlockStyle.__members__)}")
