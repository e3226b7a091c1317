"""The gradient check passes right gradients and catches wrong ones, by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.testing import check_gradients, golden_normal


@jax.custom_vjp
def twisted(x: jax.Array, y: jax.Array) -> jax.Array:
    """A product whose gradient for y is wrong by one part in a thousand."""
    return x * y


twisted.defvjp(lambda x, y: (x * y, (x, y)), lambda r, g: (g * r[1], 1.001 * g * r[0]))

X, Y = golden_normal("x", (3, 4)), golden_normal("y", (3, 4))


def test_right_gradients_pass() -> None:
    check_gradients(lambda x, y: (jnp.sin(x) * y, x.sum()), X, Y, tolerance=1e-8)


def test_a_wrong_gradient_is_caught_and_its_argument_named() -> None:
    with pytest.raises(AssertionError, match=r"argument \[1\]: slope is .* by its gradient"):
        check_gradients(twisted, X, Y, tolerance=1e-4)


def test_arguments_may_be_trees() -> None:
    with pytest.raises(AssertionError, match=r"argument \[0\]\['b'\]"):
        check_gradients(lambda w: twisted(w["a"], w["b"]), {"a": X, "b": Y}, tolerance=1e-4)


def test_integers_are_passed_on_as_they_are() -> None:
    check_gradients(lambda x, index: x[index] ** 2, X, np.array([0, 2]), tolerance=1e-8)


def test_single_precision_arguments_are_checked_in_double() -> None:
    check_gradients(jnp.exp, X.astype(np.float32), tolerance=1e-8)
    assert jnp.ones(1).dtype == jnp.float32
