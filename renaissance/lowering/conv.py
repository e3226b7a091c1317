"""Convolutions without bias: full, grouped and depthwise. NHWC maps, KRSC filters."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

from renaissance.core.errors import ShapeError, check_int, fail
from renaissance.lowering.checks import as_operand, check_map, pair, precision_of, window_output


def conv_output_shape(
    x_shape: tuple[int, ...], weight_shape: tuple[int, ...], stride: Any = 1, pad: Any = 0
) -> tuple[int, int, int, int]:
    """Shape of a convolution's output: ``floor((H + 2 pad - R) / stride) + 1`` and alike for W.

    Args:
        x_shape: ``(N, H, W, C)``.
        weight_shape: ``(K, R, S, C / groups)``.
        stride: Step of the window in pixels, one integer or ``(height, width)``.
        pad: Zeros added on both sides, one integer or ``(height, width)``.

    Returns:
        ``(N, P, Q, K)``.

    Raises:
        ShapeError: an output extent would be below 1.
    """
    (sh, sw), (ph, pw) = pair("stride", stride, 1), pair("pad", pad, 0)
    n, h, w, _ = x_shape
    k, r, s, _ = weight_shape
    return n, window_output("height", h, r, sh, ph), window_output("width", w, s, sw, pw), k


def group_conv(x: Any, weight: Any, *, groups: int, stride: Any = 1, pad: Any = 0) -> jax.Array:
    """Grouped convolution: channels are split into ``groups``, each filtered on its own.

    ``y[n,p,q,k] = sum over r,s,c of x[n, p*stride+r-pad, q*stride+s-pad, c] * weight[k,r,s,c]``,
    with ``c`` running over the channels of the group that ``k`` belongs to. Padding is symmetric
    zeros. fp16 operands are accumulated in fp32 and rounded once; fp32 uses full precision.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64; its dtype decides that of the result.
        weight: Filters ``(K, R, S, C / groups)`` in the dtype of ``x`` (fp32 is rounded when ``x``
            is fp16).
        groups: Number of groups; divides C and K.
        stride: Step of the window in pixels, one integer or ``(height, width)``.
        pad: Zeros added on both sides, one integer or ``(height, width)``.

    Returns:
        Map ``(N, P, Q, K)`` with ``P = floor((H + 2 pad - R) / stride) + 1``.

    Raises:
        ShapeError: ranks, channel counts or an output extent do not fit.
        TypeError: a dtype is not supported or does not match.
        ValueError: stride or pad is out of range.

    Source: Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural
    Networks" (groups over two devices).
    """
    x = check_map("x", x)
    weight = as_operand("weight", weight, x)
    groups = check_int("groups", groups, 1)
    if weight.ndim != 4 or 0 in weight.shape:
        fail(
            ShapeError, "shape of weight", tuple(weight.shape), "a non-empty (K, R, S, C / groups)"
        )
    c, k = x.shape[3], weight.shape[0]
    if c % groups or k % groups:
        fail(ShapeError, f"groups for C={c} and K={k}", groups, "a divisor of both")
    if weight.shape[3] != c // groups:
        fail(
            ShapeError,
            f"channels of weight {tuple(weight.shape)} for x {tuple(x.shape)} in {groups} groups",
            weight.shape[3],
            str(c // groups),
        )
    conv_output_shape(x.shape, weight.shape, stride, pad)
    ph, pw = pair("pad", pad, 0)
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=pair("stride", stride, 1),
        padding=((ph, ph), (pw, pw)),
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
        feature_group_count=groups,
        precision=precision_of(x),
    )


def conv(x: Any, weight: Any, *, stride: Any = 1, pad: Any = 0) -> jax.Array:
    """Two-dimensional convolution (cross-correlation) over all channels, without bias.

    ``y[n,p,q,k] = sum over r,s,c of x[n, p*stride+r-pad, q*stride+s-pad, c] * weight[k,r,s,c]``.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64; its dtype decides that of the result.
        weight: Filters ``(K, R, S, C)``.
        stride: Step of the window in pixels, one integer or ``(height, width)``.
        pad: Zeros added on both sides, one integer or ``(height, width)``.

    Returns:
        Map ``(N, P, Q, K)`` with ``P = floor((H + 2 pad - R) / stride) + 1``.

    Raises:
        ShapeError: ranks, channel counts or an output extent do not fit.
        TypeError: a dtype is not supported or does not match.
        ValueError: stride or pad is out of range.

    Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition".
    """
    return group_conv(x, weight, groups=1, stride=stride, pad=pad)


def depthwise_conv(x: Any, weight: Any, *, stride: Any = 1, pad: Any = 0) -> jax.Array:
    """Depthwise convolution: one filter per channel.

    ``y[n,p,q,c] = sum over r,s of x[n, p*stride+r-pad, q*stride+s-pad, c] * weight[c,r,s,0]``.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64; its dtype decides that of the result.
        weight: Filters ``(C, R, S, 1)``.
        stride: Step of the window in pixels, one integer or ``(height, width)``.
        pad: Zeros added on both sides, one integer or ``(height, width)``.

    Returns:
        Map ``(N, P, Q, C)`` with ``P = floor((H + 2 pad - R) / stride) + 1``.

    Raises:
        ShapeError: ranks, channel counts or an output extent do not fit.
        TypeError: a dtype is not supported or does not match.
        ValueError: stride or pad is out of range.

    Source: Howard et al. 2017, "MobileNets".
    """
    x = check_map("x", x)
    shape = tuple(getattr(weight, "shape", ()))
    if len(shape) != 4 or shape[0] != x.shape[3] or shape[3] != 1:
        fail(
            ShapeError, "shape of weight", shape, f"(C, R, S, 1) with C = {x.shape[3]}, as x has it"
        )
    return group_conv(x, weight, groups=x.shape[3], stride=stride, pad=pad)
