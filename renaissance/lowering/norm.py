"""Batch normalisation: training with running statistics, inference folded to an affine map.

Statistics, scale and shift are fp32 (fp64 for fp64 maps) whatever the dtype of the map; the result
is rounded once. The derivative is written out: it is two sums and one affine map of ``(dy, x)``.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from renaissance.core.errors import ShapeError, check_real, fail
from renaissance.lowering.checks import accumulator, check_floating, check_vector


def batch_statistics(x: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of every channel, in one pass that does not cancel.

    Both sums run over ``x - pivot``, where the pivot is the median of three values of the channel
    itself. It lies within a few standard deviations of the mean, so ``E[d^2] - E[d]^2`` loses no
    digits however far the mean is from zero, and one outlier among the three does no harm.

    Args:
        x: ``(..., C)``, fp16, fp32 or fp64.

    Returns:
        ``(mean, variance)``, each ``(C,)`` in fp32 (fp64 for fp64); the variance is never negative.

    Raises:
        ShapeError: ``x`` has no channel axis besides others, or is empty.
        TypeError: ``x`` is not a floating array.

    Source: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance" (shift).
    """
    x = _check_channels_last(x)
    axes = tuple(range(x.ndim - 1))
    values = x.astype(accumulator(x))
    pivot = lax.stop_gradient(_pivot(values))
    distance = values - pivot
    count = prod(x.shape[:-1])
    offset = jnp.sum(distance, axes) / count
    variance = jnp.sum(distance * distance, axes) / count - offset * offset
    return pivot + offset, jnp.maximum(variance, 0)


def update_running(
    running_mean: jax.Array,
    running_var: jax.Array,
    mean: jax.Array,
    var: jax.Array,
    *,
    count: int,
    momentum: float,
) -> tuple[jax.Array, jax.Array]:
    """Running statistics after a batch: ``(1 - m) running + m batch``.

    The variance enters unbiased, times ``n / (n - 1)``; a single value leaves it unscaled.

    Args:
        running_mean: ``(C,)``, before the batch.
        running_var: ``(C,)``, before the batch.
        mean: ``(C,)``, of the batch.
        var: ``(C,)``, biased, of the batch.
        count: Values per channel in the batch, n.
        momentum: Weight m of the new batch, in [0, 1].

    Returns:
        ``(running_mean, running_var)`` after the batch.
    """
    unbiased = var * (count / (count - 1)) if count > 1 else var
    return (
        (1 - momentum) * running_mean + momentum * mean,
        (1 - momentum) * running_var + momentum * unbiased,
    )


def batch_norm_train(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Batch normalisation with the statistics of this batch.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, mean and biased variance taken over every
    axis but the last. Gradients flow to ``x``, ``weight`` and ``bias``, and through the batch's
    statistics; the running statistics are constants.

    Args:
        x: ``(..., C)``, a map or flat vectors, fp16, fp32 or fp64.
        weight: Scale ``(C,)``, gamma.
        bias: Shift ``(C,)``, beta.
        running_mean: ``(C,)``.
        running_var: ``(C,)``.
        momentum: Weight of this batch in the running statistics, in [0, 1].
        eps: Added to the variance, above 0.

    Returns:
        ``(y, running_mean, running_var)``: ``y`` in shape and dtype of ``x``, the statistics after
        this batch.

    Raises:
        ShapeError: a vector's length is not C.
        TypeError: a dtype is not floating.
        ValueError: momentum or eps is out of range.

    Source: Ioffe and Szegedy 2015, "Batch normalization".
    """
    x = _check_channels_last(x)
    weight, bias, running_mean, running_var = _check_parameters(
        x, weight, bias, running_mean, running_var
    )
    momentum = check_real("momentum", momentum, 0.0, 1.0)
    eps = check_real("eps", eps, 0.0, open_low=True)
    y, mean, var = _normalise(x, weight, bias, eps)
    running_mean, running_var = update_running(
        lax.stop_gradient(running_mean),
        lax.stop_gradient(running_var),
        lax.stop_gradient(mean),
        lax.stop_gradient(var),
        count=prod(x.shape[:-1]),
        momentum=momentum,
    )
    return y, running_mean, running_var


def fold_batch_norm(
    weight: Any, bias: Any, running_mean: Any, running_var: Any, *, eps: float = 1e-5
) -> tuple[jax.Array, jax.Array]:
    """Fold batch norm to the affine map it is at inference.

    ``scale = weight / sqrt(running_var + eps)``, ``shift = bias - running_mean * scale``.

    Args:
        weight: Scale ``(C,)``, gamma.
        bias: Shift ``(C,)``, beta.
        running_mean: ``(C,)``.
        running_var: ``(C,)``.
        eps: Added to the variance, above 0.

    Returns:
        ``(eq_scale, eq_bias)``, each ``(C,)``, fp32 or fp64.

    Raises:
        ShapeError: the vectors' lengths differ.
        TypeError: a dtype is not floating.
        ValueError: eps is out of range.
    """
    eps = check_real("eps", eps, 0.0, open_low=True)
    weight = check_floating("weight", weight)
    weight, bias, running_mean, running_var = _check_parameters(
        weight, weight, bias, running_mean, running_var
    )
    scale = weight / jnp.sqrt(running_var + eps)
    return scale, bias - running_mean * scale


def affine(x: Any, scale: Any, shift: Any) -> jax.Array:
    """Per-channel affine map ``y = x * scale + shift``, evaluated in fp32 or better.

    Args:
        x: ``(..., C)``, fp16, fp32 or fp64.
        scale: ``(C,)``.
        shift: ``(C,)``.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        ShapeError: a vector's length is not C.
        TypeError: a dtype is not floating.
    """
    x = _check_channels_last(x)
    wide = accumulator(x)
    scale = check_vector("scale", scale, x.shape[-1]).astype(wide)
    shift = check_vector("shift", shift, x.shape[-1]).astype(wide)
    return (x.astype(wide) * scale + shift).astype(x.dtype)


def batch_norm_infer(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, *, eps: float = 1e-5
) -> jax.Array:
    """Batch normalisation with the running statistics: ``y = x * eq_scale + eq_bias``.

    Args:
        x: ``(..., C)``, fp16, fp32 or fp64.
        weight: Scale ``(C,)``, gamma.
        bias: Shift ``(C,)``, beta.
        running_mean: ``(C,)``.
        running_var: ``(C,)``.
        eps: Added to the variance, above 0.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        ShapeError: a vector's length is not C.
        TypeError: a dtype is not floating.
        ValueError: eps is out of range.
    """
    scale, shift = fold_batch_norm(weight, bias, running_mean, running_var, eps=eps)
    return affine(x, scale, shift)


def _pivot(values: jax.Array) -> jax.Array:
    """The median of a channel's first, middle and last value: element-wise, so it costs no pass."""
    extents = values.shape[:-1]
    a, b, c = (values[tuple((e - 1) * part // 2 for e in extents)] for part in range(3))
    return jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _normalise(
    x: jax.Array, weight: jax.Array, bias: jax.Array, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(y, mean, biased variance)``; no gradient flows back from the two statistics."""
    mean, var = batch_statistics(x)
    # Subtracting the mean before scaling keeps the digits that x * scale + shift would cancel.
    y = (x.astype(mean.dtype) - mean) * (weight * lax.rsqrt(var + eps)) + bias
    return y.astype(x.dtype), mean, var


def _normalise_forward(x, weight, bias, eps):  # type: ignore[no-untyped-def]
    y, mean, var = _normalise(x, weight, bias, eps)
    return (y, mean, var), (x, weight, mean, var)


def _normalise_backward(eps, residuals, cotangents):  # type: ignore[no-untyped-def]
    x, weight, mean, var = residuals
    axes, count = tuple(range(x.ndim - 1)), prod(x.shape[:-1])
    dy = cotangents[0].astype(mean.dtype)
    inverse = lax.rsqrt(var + eps)
    normal = (x.astype(mean.dtype) - mean) * inverse
    dbias = jnp.sum(dy, axes)
    dweight = jnp.sum(dy * normal, axes)
    dx = weight * inverse * (dy - dbias / count - normal * (dweight / count))
    return dx.astype(x.dtype), dweight, dbias


_normalise.defvjp(_normalise_forward, _normalise_backward)


def _check_channels_last(x: Any) -> jax.Array:
    x = check_floating("x", x)
    if x.ndim < 2 or 0 in x.shape:
        fail(ShapeError, "shape of x", tuple(x.shape), "a non-empty (N, H, W, C) or (N, C)")
    return x


def _check_parameters(x: jax.Array, *vectors: Any) -> tuple[jax.Array, ...]:
    names = ("weight", "bias", "running_mean", "running_var")
    return tuple(
        check_vector(name, vector, x.shape[-1]).astype(accumulator(x))
        for name, vector in zip(names, vectors, strict=True)
    )
