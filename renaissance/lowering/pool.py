"""Max, average and global average pooling over NHWC maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from renaissance.core.errors import fail
from renaissance.lowering.checks import accumulator, check_map, pair, window_output

Pair = tuple[int, int]


def pool_output_shape(
    x_shape: tuple[int, ...], kernel: Any, stride: Any, pad: Any = 0
) -> tuple[int, int, int, int]:
    """Shape of a pooling layer's output: ``floor((H + 2 pad - kernel) / stride) + 1``, alike for W.

    Args:
        x_shape: ``(N, H, W, C)``.
        kernel: Window in pixels, one integer or ``(height, width)``.
        stride: Step in pixels, one integer or ``(height, width)``.
        pad: Pixels added on both sides, at most half the kernel.

    Returns:
        ``(N, P, Q, C)``.

    Raises:
        ShapeError: an output extent would be below 1.
        ValueError: kernel, stride or pad is out of range.
    """
    (kh, kw), (sh, sw), (ph, pw) = _window(kernel, stride, pad)
    n, h, w, c = x_shape
    return n, window_output("height", h, kh, sh, ph), window_output("width", w, kw, sw, pw), c


def max_pool(x: Any, *, kernel: Any, stride: Any, pad: Any = 0) -> jax.Array:
    """Maximum over sliding windows; padding counts as minus infinity.

    In the derivative a tie has one winner: the first of the window in row-major order.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64.
        kernel: Window in pixels, one integer or ``(height, width)``.
        stride: Step in pixels, one integer or ``(height, width)``.
        pad: Pixels added on both sides, at most half the kernel.

    Returns:
        Map ``(N, P, Q, C)`` in the dtype of ``x``, with
        ``P = floor((H + 2 pad - kernel) / stride) + 1``.

    Raises:
        ShapeError: rank is not 4, or an output extent would be below 1.
        TypeError: the dtype is not floating.
        ValueError: kernel, stride or pad is out of range; pad above half the kernel.
    """
    x = check_map("x", x)
    pool_output_shape(x.shape, kernel, stride, pad)
    return _max_pool(x, *_window(kernel, stride, pad))


def average_pool(x: Any, *, kernel: Any, stride: Any, pad: Any = 0) -> jax.Array:
    """Mean over the real pixels of sliding windows; padding is not counted.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64; sums run in fp32 or better.
        kernel: Window in pixels, one integer or ``(height, width)``.
        stride: Step in pixels, one integer or ``(height, width)``.
        pad: Pixels added on both sides, at most half the kernel.

    Returns:
        Map ``(N, P, Q, C)`` in the dtype of ``x``, with
        ``P = floor((H + 2 pad - kernel) / stride) + 1``.

    Raises:
        ShapeError: rank is not 4, or an output extent would be below 1.
        TypeError: the dtype is not floating.
        ValueError: kernel, stride or pad is out of range; pad above half the kernel.
    """
    x = check_map("x", x)
    _, p, q, _ = pool_output_shape(x.shape, kernel, stride, pad)
    kernels, strides, pads = _window(kernel, stride, pad)
    wide = accumulator(x)
    total = lax.reduce_window(
        x.astype(wide), np.zeros((), wide), lax.add, *_reduce_window(kernels, strides, pads)
    )
    rows = _real_pixels(x.shape[1], p, kernels[0], strides[0], pads[0])
    columns = _real_pixels(x.shape[2], q, kernels[1], strides[1], pads[1])
    share = 1.0 / np.outer(rows, columns)[:, :, None]
    return (total * jnp.asarray(share, wide)).astype(x.dtype)


def global_average_pool(x: Any) -> jax.Array:
    """Mean over height and width.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64; sums run in fp32 or better.

    Returns:
        ``(N, 1, 1, C)`` in the dtype of ``x``.

    Raises:
        ShapeError: rank is not 4.
        TypeError: the dtype is not floating.

    Source: Lin et al. 2013, "Network in network".
    """
    x = check_map("x", x)
    return jnp.mean(x.astype(accumulator(x)), (1, 2), keepdims=True).astype(x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _max_pool(x: jax.Array, kernel: Pair, stride: Pair, pad: Pair) -> jax.Array:
    lowest = np.array(-np.inf, x.dtype)
    return lax.reduce_window(x, lowest, lax.max, *_reduce_window(kernel, stride, pad))


@_max_pool.defjvp
def _max_pool_derivative(
    kernel: Pair, stride: Pair, pad: Pair, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """The tangent of the winner of each window.

    Written over the taps of the window (each a strided view of the map) because its transpose is
    then a plain sum of spread-out views: deterministic on every backend, where a scatter may not
    be, and one pass that reads a byte per window.
    """
    (x,), (dx,) = primals, tangents
    out_shape = pool_output_shape(x.shape, kernel, stride, pad)
    y, winner = _winners(x, kernel, stride, pad, out_shape)
    # Sums of overlapping windows in fp32 or better: the transpose adds in this dtype.
    tangent = _taps(dx.astype(accumulator(x)), kernel, stride, pad, out_shape, 0)
    dy = jnp.zeros(out_shape, accumulator(x))
    for index, tap in enumerate(product(range(kernel[0]), range(kernel[1]))):
        dy += jnp.where(winner == index, tangent(*tap), jnp.zeros((), dy.dtype))
    return y, dy.astype(dx.dtype)


def _winners(
    x: jax.Array, kernel: Pair, stride: Pair, pad: Pair, out_shape: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The maximum of each window and the place of its first holder, counted in row-major order."""
    value = _taps(x, kernel, stride, pad, out_shape, -np.inf)
    taps = list(product(range(kernel[0]), range(kernel[1])))
    y = value(*taps[0])
    narrow = jnp.uint8 if len(taps) <= 256 else jnp.int32
    winner = jnp.zeros(out_shape, narrow)
    for index, tap in enumerate(taps[1:], 1):
        seen = value(*tap)
        # NaN wins, as it does in the maximum.
        better = (seen > y) | (jnp.isnan(seen) & ~jnp.isnan(y))
        y, winner = jnp.where(better, seen, y), jnp.where(better, narrow(index), winner)
    # Stored, not recomputed: the derivative would look up every window once per tap.
    return y, lax.optimization_barrier(winner)


def _taps(
    x: jax.Array, kernel: Pair, stride: Pair, pad: Pair, out_shape: tuple[int, ...], fill: float
) -> Callable[[int, int], jax.Array]:
    """``(r, s) -> `` the map of what every window sees at its position ``(r, s)``."""
    (kh, kw), (sh, sw), (ph, pw) = kernel, stride, pad
    n, p, q, c = out_shape
    rows, columns = (p - 1) * sh + kh, (q - 1) * sw + kw
    # A negative edge crops the rows that no window reaches.
    edges = ((0, 0, 0), (ph, rows - ph - x.shape[1], 0), (pw, columns - pw - x.shape[2], 0))
    padded = lax.pad(x, np.array(fill, x.dtype), (*edges, (0, 0, 0)))

    def tap(r: int, s: int) -> jax.Array:
        end = (n, r + (p - 1) * sh + 1, s + (q - 1) * sw + 1, c)
        return lax.slice(padded, (0, r, s, 0), end, (1, sh, sw, 1))

    return tap


def _window(kernel: Any, stride: Any, pad: Any) -> tuple[Pair, Pair, Pair]:
    kernels, strides = pair("kernel", kernel, 1), pair("stride", stride, 1)
    pads = pair("pad", pad, 0)
    for k, p in zip(kernels, pads, strict=True):
        if 2 * p > k:
            fail(ValueError, f"pad of a window of {k}", p, f"at most {k // 2}, half the window")
    return kernels, strides, pads


def _reduce_window(kernel: Pair, stride: Pair, pad: Pair) -> tuple[Any, Any, Any]:
    edges = ((0, 0), (pad[0], pad[0]), (pad[1], pad[1]), (0, 0))
    return (1, *kernel, 1), (1, *stride, 1), edges


def _real_pixels(extent: int, outputs: int, kernel: int, stride: int, pad: int) -> np.ndarray:
    """How many real pixels each window position covers along one axis."""
    start = np.arange(outputs) * stride - pad
    return np.minimum(start + kernel, extent) - np.maximum(start, 0)
