"""Operations over whole runs of regions: one function of named tensors each.

The planned lowering does each of these with one launch over contiguous memory; here they are the
definition, on dictionaries from name to array.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from renaissance.algo.clip import Clip
from renaissance.algo.ema import EMA

Tensors = dict[str, jax.Array]


def clear(tensors: Mapping[str, jax.Array]) -> Tensors:
    """Zeros in place of every tensor.

    Args:
        tensors: Any shapes and dtypes.
    """
    return {name: jnp.zeros_like(x) for name, x in tensors.items()}


def cast(tensors: Mapping[str, jax.Array], dtype: Any) -> Tensors:
    """Every tensor in another element type, rounded to nearest even.

    Args:
        tensors: Any shapes.
        dtype: The element type wanted.
    """
    return {name: x.astype(dtype) for name, x in tensors.items()}


JOINED_ELEMENTS = 1 << 21
"""Up to so many elements are checked side by side: a small network feels every launch. The loop
of an MLP has 48 instead of 57, and takes 96.9 instead of 98.6 us a step with a spread of 3 (H200,
``benchmarks/loop_kernels.py``). In a large network the copy would cost more than the launches."""


def all_finite(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """Whether no element of any tensor is infinite or NaN.

    Args:
        tensors: Floating-point arrays of any shapes.

    Returns:
        A boolean scalar; True for no tensors.
    """
    values = list(tensors.values())
    is_small = sum(x.size for x in values) <= JOINED_ELEMENTS
    if len(values) > 1 and is_small and len({x.dtype for x in values}) == 1:
        values = [jnp.concatenate([x.ravel() for x in values])]
    flags = [jnp.all(jnp.isfinite(x)) for x in values]
    return reduce(jnp.logical_and, flags, jnp.asarray(True))


def unscale(tensors: Mapping[str, jax.Array], scale: jax.Array) -> Tensors:
    """Gradients divided by the loss scale; a power of two, so nothing is rounded.

    Args:
        tensors: float32 or float64 gradients of the scaled loss.
        scale: The loss scale, a scalar.
    """
    return {name: x * (1 / scale).astype(x.dtype) for name, x in tensors.items()}


def clip(tensors: Mapping[str, jax.Array], rule: Clip) -> Tensors:
    """Gradients clipped by value or by their joint norm.

    Args:
        tensors: Unscaled gradients of all trained tensors.
        rule: :class:`~renaissance.algo.clip.ClipByValue` or
            :class:`~renaissance.algo.clip.ClipByGlobalNorm`.
    """
    return dict(zip(tensors, rule.clip(list(tensors.values()), xp=jnp), strict=True))


def ema(
    average: Mapping[str, jax.Array], weights: Mapping[str, jax.Array], decay: float
) -> Tensors:
    """``e <- d e + (1 - d) w`` for every tensor.

    Args:
        average: The averages before the step.
        weights: The weights after it; at least the names of ``average``.
        decay: ``d`` in [0, 1).
    """
    rule = EMA(decay)
    return {name: rule.update(e, weights[name], xp=jnp) for name, e in average.items()}


def accumulate(sums: Mapping[str, jax.Array], result: Mapping[str, jax.Array]) -> Tensors:
    """Epoch sums of metrics with one batch added.

    Args:
        sums: Sums over the rows seen so far: loss, top-1 and top-5 hits, count.
        result: The same of this batch.
    """
    return {name: total + result[name] for name, total in sums.items()}


def select(flag: jax.Array, new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """``new`` where the flag holds, else the very bits of ``old``.

    Args:
        flag: A boolean scalar.
        new: Tensors after a step; may hold NaN when the flag is False.
        old: The same names, shapes and dtypes before it.

    Raises:
        ValueError: The two differ in their names.
    """
    if new.keys() != old.keys():
        odd = sorted(new.keys() ^ old.keys())
        raise ValueError(f"select: {odd} are in only one of new and old, expected the same names")
    return {name: jnp.where(flag, new[name], x) for name, x in old.items()}
