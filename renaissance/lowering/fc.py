"""Fully connected layers, and the layers that only reshape: flatten and channel padding."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
from jax import lax

from renaissance.core.errors import ShapeError, check_int, fail
from renaissance.lowering.checks import (
    accumulator,
    as_operand,
    check_flat,
    check_floating,
    check_map,
    check_vector,
    precision_of,
)


def fc(x: Any, weight: Any, bias: Any = None) -> jax.Array:
    """Fully connected layer: ``y[n, o] = sum over i of x[n, i] * weight[o, i] + bias[o]``.

    fp16 products are accumulated in fp32, rounded, and the bias is added in fp32 before the result
    is rounded again; fp32 uses full precision.

    Args:
        x: Flat vectors ``(N, in)`` or ``(N, 1, 1, in)``, fp16, fp32 or fp64.
        weight: ``(out, in)`` in the dtype of ``x`` (fp32 is rounded when ``x`` is fp16).
        bias: ``(out,)``, added in fp32 or better; None for no bias.

    Returns:
        ``(N, out)`` or ``(N, 1, 1, out)``, as ``x``, in its dtype.

    Raises:
        ShapeError: the shapes do not fit.
        TypeError: a dtype is not supported or does not match.
    """
    x = check_flat("x", x)
    weight = as_operand("weight", weight, x)
    if weight.ndim != 2 or weight.shape[1] != x.shape[-1]:
        expected = f"(out, in) with in = {x.shape[-1]}, as x has it"
        fail(ShapeError, "shape of weight", tuple(weight.shape), expected)
    contract = (((x.ndim - 1,), (1,)), ((), ()))
    y = lax.dot_general(x, weight, contract, precision=precision_of(x))
    if bias is None:
        return y
    bias = check_vector("bias", bias, weight.shape[0]).astype(accumulator(x))
    return (y.astype(accumulator(x)) + bias).astype(x.dtype)


def flatten(x: Any, start_dim: int = 1) -> jax.Array:
    """Join all axes from ``start_dim`` on, in memory order: a map flattens in H, W, C order.

    Args:
        x: Rank 2 or more, fp16, fp32 or fp64.
        start_dim: First axis to join, in [1, rank - 1].

    Returns:
        ``(..., product of the joined axes)``: for a map and ``start_dim`` 1, ``(N, H W C)``.

    Raises:
        ShapeError: rank is below 2.
        TypeError: the dtype is not floating.
        ValueError: ``start_dim`` is out of range.
    """
    x = check_floating("x", x)
    if x.ndim < 2:
        fail(ShapeError, "shape of x", tuple(x.shape), "rank 2 or more")
    start_dim = check_int("start_dim", start_dim, 1, x.ndim - 1)
    return x.reshape(*x.shape[:start_dim], prod(x.shape[start_dim:]))


def channel_padding(x: Any, multiple: int = 8) -> jax.Array:
    """Append channels of zeros until their number is a multiple of ``multiple``.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64.
        multiple: At least 1.

    Returns:
        ``(N, H, W, C')``, C' the next multiple of ``multiple`` at or above C.

    Raises:
        ShapeError: rank is not 4.
        TypeError: the dtype is not floating.
        ValueError: ``multiple`` is below 1.
    """
    x = check_map("x", x)
    return pad_channels_to(x, x.shape[3] + -x.shape[3] % check_int("multiple", multiple, 1))


def pad_channels_to(x: jax.Array, channels: int) -> jax.Array:
    """Append channels of zeros until there are ``channels`` of them.

    Args:
        x: Map ``(N, H, W, C)`` or filters ``(K, R, S, C)``.
        channels: At least C.

    Returns:
        ``(N, H, W, channels)``.

    Raises:
        ShapeError: ``x`` has more channels already.
    """
    missing = channels - x.shape[3]
    if missing < 0:
        fail(ShapeError, "channels of x", x.shape[3], f"at most {channels}")
    if missing == 0:
        return x
    zero = x.dtype.type(0)
    return lax.pad(x, zero, ((0, 0, 0), (0, 0, 0), (0, 0, 0), (0, missing, 0)))
