"""Directional gradient checks in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.philox import normal


def check_gradients(
    function: Callable[..., Any],
    *arguments: Any,
    tolerance: float = 1e-6,
    step: float = 1e-5,
    seed: int = 0,
) -> None:
    """Assert that a function's gradients are its slopes, in fp64 and along random directions.

    Each floating argument is moved on its own along a random direction d, and the central
    difference ``(s(a + h d) - s(a - h d)) / 2h`` of ``s = sum of the outputs, each weighted at
    random`` is held against ``<gradient of s, d>``.

    Args:
        function: Takes ``arguments``, returns an array or a tuple, list or dict of arrays.
        arguments: Arrays, or pytrees of arrays; floating ones are converted to fp64, others are
            passed on as they are.
        tolerance: Largest difference allowed, relative to the product of the norms of gradient
            and direction divided by the root of the number of elements (what a random direction
            gives on average).
        step: The h of the difference quotient. No kink of the function may lie that near.
        seed: Of the directions and weights.

    Raises:
        AssertionError: names the argument, by position and path, and both slopes.
    """
    with jax.enable_x64(True):
        leaves, tree = jax.tree_util.tree_flatten_with_path(arguments)
        paths = [jax.tree_util.keystr(path) for path, _ in leaves]
        values = [_as_fp64(leaf) for _, leaf in leaves]
        floating = [i for i, value in enumerate(values) if value.dtype == jnp.float64]

        @jax.jit
        def weighted_sum(moving: list[jax.Array]) -> jax.Array:
            every = list(values)
            for index, value in zip(floating, moving, strict=True):
                every[index] = value
            outputs = jax.tree.leaves(function(*jax.tree.unflatten(tree, every)))
            return sum(
                (
                    jnp.sum(out * _direction(out.shape, seed, 1 + i))
                    for i, out in enumerate(outputs)
                ),
                start=jnp.zeros(()),
            )

        start = [values[index] for index in floating]
        gradients = jax.grad(weighted_sum)(start)
        for place, (index, gradient) in enumerate(zip(floating, gradients, strict=True)):
            direction = _direction(gradient.shape, seed, 1001 + place)
            above, below = list(start), list(start)
            above[place], below[place] = (
                start[place] + step * direction,
                start[place] - step * direction,
            )
            numeric = float(weighted_sum(above) - weighted_sum(below)) / (2 * step)
            analytic = float(jnp.sum(gradient * direction))
            size = max(gradient.size, 1)
            scale = float(jnp.linalg.norm(gradient.ravel()) * np.linalg.norm(direction)) / size**0.5
            if not abs(numeric - analytic) <= tolerance * max(scale, abs(numeric)):
                raise AssertionError(
                    f"argument {paths[index]}: slope is {analytic:.9g} by its gradient, "
                    f"{numeric:.9g} by difference"
                )


def _as_fp64(leaf: Any) -> jax.Array:
    value = jnp.asarray(leaf)
    return value.astype(jnp.float64) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _direction(shape: tuple[int, ...], seed: int, operation: int) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    return normal(seed, count, operation=operation).reshape(shape)
