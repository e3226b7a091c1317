"""What every layer function checks about its arrays before it computes.

Shapes and dtypes are known while tracing, so a misuse fails when the function is called or traced,
never on the device.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from renaissance.core.errors import ShapeError, check_int, fail

FLOATING = ("float16", "float32", "float64")


def check_floating(name: str, x: Any) -> jax.Array:
    """Return ``x`` as an array if it is fp16, fp32 or fp64."""
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        fail(TypeError, f"{name} of type {type(x).__name__}", x, "an array")
    if str(x.dtype) not in FLOATING:
        fail(TypeError, f"dtype of {name}", str(x.dtype), "one of " + ", ".join(FLOATING))
    return jnp.asarray(x)


def check_map(name: str, x: Any) -> jax.Array:
    """Return ``x`` as an array if it is a floating NHWC map (rank 4, nothing empty)."""
    x = check_floating(name, x)
    if x.ndim != 4 or 0 in x.shape:
        fail(ShapeError, f"shape of {name}", tuple(x.shape), "a non-empty (N, H, W, C)")
    return x


def check_flat(name: str, x: Any) -> jax.Array:
    """Return ``x`` as an array if it holds flat vectors: ``(N, C)`` or ``(N, 1, 1, C)``."""
    x = check_floating(name, x)
    flat = x.ndim == 2 or (x.ndim == 4 and x.shape[1:3] == (1, 1))
    if not flat or 0 in x.shape:
        fail(ShapeError, f"shape of {name}", tuple(x.shape), "a non-empty (N, C) or (N, 1, 1, C)")
    return x


def check_vector(name: str, x: Any, length: int) -> jax.Array:
    """Return ``x`` as an array if it is a floating vector of ``length`` values."""
    x = check_floating(name, x)
    if x.shape != (length,):
        fail(ShapeError, f"shape of {name}", tuple(x.shape), f"({length},)")
    return x


def as_operand(name: str, weight: Any, x: jax.Array) -> jax.Array:
    """Return a weight in the dtype of ``x``; fp32 masters are rounded when ``x`` is fp16.

    Any other mixture is refused: it would lose precision, or spend it, without being asked to.
    """
    weight = check_floating(name, weight)
    if weight.dtype == x.dtype:
        return weight
    if weight.dtype == jnp.float32 and x.dtype == jnp.float16:
        return weight.astype(x.dtype)
    return fail(
        TypeError,
        f"dtype of {name}",
        str(weight.dtype),
        f"{x.dtype}, the dtype of the layer's input",
    )


def pair(name: str, value: Any, low: int) -> tuple[int, int]:
    """Return ``(height, width)`` from one integer or a pair of integers, each ``>= low``."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            fail(ValueError, name, value, "one integer or a pair (height, width)")
        return check_int(name, value[0], low), check_int(name, value[1], low)
    both = check_int(name, value, low)
    return both, both


def accumulator(x: jax.Array) -> Any:
    """The dtype of statistics, sums and losses over ``x``: fp64 for fp64, else fp32."""
    return jnp.float64 if x.dtype == jnp.float64 else jnp.float32


def precision_of(x: jax.Array) -> lax.Precision | None:
    """Matrix precision for operands like ``x``.

    fp32 and fp64 multiply at full precision; TF32 is used only where the caller asks for it with
    ``jax.default_matmul_precision``.
    """
    if x.dtype == jnp.float16 or jax.default_matmul_precision.value is not None:
        return None
    return lax.Precision.HIGHEST


def window_output(name: str, extent: int, kernel: int, stride: int, pad: int) -> int:
    """Output extent of a sliding window: ``floor((extent + 2 pad - kernel) / stride) + 1``."""
    size = (extent + 2 * pad - kernel) // stride + 1
    if size < 1:
        fail(
            ShapeError,
            f"output {name} for input {extent}, kernel {kernel}, stride {stride}, pad {pad}",
            size,
            "at least 1",
        )
    return size
