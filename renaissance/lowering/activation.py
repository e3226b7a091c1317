"""Element-wise activations and the residual add.

Every function keeps the dtype of its input. fp16 inputs of curved functions are evaluated in fp32
and rounded once. At a kink the derivative is that of the flat side, and NaN passes through, so a
diverging run is seen and not silently clamped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from renaissance.core.errors import ShapeError, fail
from renaissance.lowering.checks import accumulator, check_floating

LEAKY_SLOPE = 0.01
ELU_ALPHA = 1.0


def relu(x: Any) -> jax.Array:
    """Rectified linear unit: ``max(x, 0)``; the derivative at 0 is 0.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines".
    """
    x = check_floating("x", x)
    return jnp.where(x <= 0, jnp.zeros((), x.dtype), x)


def relu6(x: Any) -> jax.Array:
    """ReLU clipped at 6: ``min(max(x, 0), 6)``; the derivative at 0 and at 6 is 0.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Krizhevsky 2010, "Convolutional deep belief networks on CIFAR-10".
    """
    x = relu(x)
    return jnp.where(x >= 6, jnp.full((), 6, x.dtype), x)


def leaky_relu(x: Any) -> jax.Array:
    """Leaky ReLU: ``x`` above 0, ``0.01 x`` elsewhere; the derivative at 0 is 0.01.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Maas et al. 2013, "Rectifier nonlinearities improve neural network acoustic models".
    """
    x = check_floating("x", x)
    return _curved(lambda v: jnp.where(v > 0, v, LEAKY_SLOPE * v), x)


def silu(x: Any) -> jax.Array:
    """Sigmoid-weighted linear unit: ``x * sigmoid(x)``.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Elfwing et al. 2017, "Sigmoid-weighted linear units".
    """
    return _curved(lambda v: v * lax.logistic(v), check_floating("x", x))


def hardswish(x: Any) -> jax.Array:
    """Piecewise quadratic twin of SiLU: ``x * relu6(x + 3) / 6``.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Howard et al. 2019, "Searching for MobileNetV3".
    """
    return _curved(lambda v: v * relu6(v + 3) / 6, check_floating("x", x))


def elu(x: Any) -> jax.Array:
    """Exponential linear unit with alpha 1: ``x`` above 0, ``exp(x) - 1`` elsewhere.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.

    Source: Clevert et al. 2015, "Fast and accurate deep network learning by exponential linear
    units".
    """

    def formula(v: jax.Array) -> jax.Array:
        # The branch not taken must stay finite, or its infinite derivative times 0 would be NaN.
        below = jnp.where(v > 0, jnp.zeros((), v.dtype), v)
        return jnp.where(v > 0, v, ELU_ALPHA * jnp.expm1(below))

    return _curved(formula, check_floating("x", x))


def sigmoid(x: Any) -> jax.Array:
    """Logistic function: ``1 / (1 + exp(-x))``.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.
    """
    return _curved(lax.logistic, check_floating("x", x))


def tanh(x: Any) -> jax.Array:
    """Hyperbolic tangent.

    Args:
        x: Any shape, fp16, fp32 or fp64.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: ``x`` is not a floating array.
    """
    return _curved(jnp.tanh, check_floating("x", x))


def add(shortcut: Any, main: Any) -> jax.Array:
    """Residual add: the element-wise sum of two equal shapes. Nothing is broadcast.

    Args:
        shortcut: Any shape, fp16, fp32 or fp64.
        main: Shape and dtype of ``shortcut``.

    Returns:
        Shape and dtype of the arguments.

    Raises:
        ShapeError: the shapes differ.
        TypeError: an argument is not a floating array, or the dtypes differ.

    Source: He et al. 2015, "Deep residual learning for image recognition".
    """
    shortcut, main = check_floating("shortcut", shortcut), check_floating("main", main)
    if shortcut.shape != main.shape:
        fail(
            ShapeError,
            "shape of main",
            tuple(main.shape),
            f"{tuple(shortcut.shape)}, the shape of shortcut",
        )
    if shortcut.dtype != main.dtype:
        fail(
            TypeError, "dtype of main", str(main.dtype), f"{shortcut.dtype}, the dtype of shortcut"
        )
    return shortcut + main


def _curved(formula: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Evaluate ``formula`` in fp32 or better and round the result to the dtype of ``x``."""
    return formula(x.astype(accumulator(x))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Any], jax.Array]] = {
    "relu": relu,
    "relu6": relu6,
    "leaky_relu": leaky_relu,
    "silu": silu,
    "hardswish": hardswish,
    "elu": elu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
