"""Activations and the residual add: golden numbers, kinks, NaN, gradients, errors."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import ShapeError
from renaissance.lowering.activation import ACTIVATIONS
from renaissance.ops import add, relu
from renaissance.testing import Golden, check_gradients, golden_normal

from .support import assert_golden, drawn, load

CASES = load("other_layers", "activation")
EDGES = np.array([0.0, 3.0, -3.0, 6.0, -6.0, 80.0, -80.0, 1e-6])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_forward_and_gradients_are_golden(case: Golden, dtype: str) -> None:
    x = 4 * drawn(case, "x", case.options["x"])
    if dtype != "float16":  # 1e-6 rounds to another number there
        x.reshape(-1)[: len(EDGES)] = EDGES
        assert_golden(case, ACTIVATIONS[case.options["function"]], {"x": x}, dtype)
    else:
        x.reshape(-1)[: len(EDGES)] = EDGES
        x = x.astype(np.float16)
        y = ACTIVATIONS[case.options["function"]](jnp.asarray(x))
        exact = ACTIVATIONS[case.options["function"]](jnp.asarray(x, jnp.float32))
        chex.assert_trees_all_equal(y, exact.astype(jnp.float16))


def test_every_activation_of_the_table_has_golden_numbers() -> None:
    assert {case.options["function"] for case in CASES} == set(ACTIVATIONS)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_shape_and_dtype_stay_and_nothing_overflows(name: str) -> None:
    for dtype in (jnp.float16, jnp.float32):
        x = jnp.asarray([[-6e4, -1.0, 0.0, 1.0, 6e4]], dtype)
        y, backward = jax.vjp(ACTIVATIONS[name], x)
        (dx,) = backward(jnp.ones_like(y))
        chex.assert_equal_shape_prefix((x, y, dx), 2)
        assert y.dtype == dx.dtype == dtype
        chex.assert_tree_all_finite((y, dx))


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_nan_is_not_hidden(name: str) -> None:
    assert jnp.isnan(ACTIVATIONS[name](jnp.asarray([jnp.nan]))).all()


@pytest.mark.parametrize(
    ("name", "at", "slope"),
    [
        ("relu", 0.0, 0.0),
        ("relu6", 0.0, 0.0),
        ("relu6", 6.0, 0.0),
        ("leaky_relu", 0.0, 0.01),
        ("hardswish", -3.0, 0.0),
        ("hardswish", 3.0, 1.0),
        ("elu", 0.0, 1.0),
        ("elu", 200.0, 1.0),
    ],
)
def test_the_slope_at_a_kink(name: str, at: float, slope: float) -> None:
    assert jax.grad(ACTIVATIONS[name])(at if isinstance(at, jax.Array) else jnp.float32(at)) == (
        pytest.approx(slope, rel=1e-6)
    )


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_gradients_are_slopes(name: str) -> None:
    x = 3 * golden_normal("x", (2, 3, 3, 4))
    kinks = np.array([-3.0, 0.0, 3.0, 6.0])
    assert np.abs(x[..., None] - kinks).min() > 1e-3
    check_gradients(ACTIVATIONS[name], x, tolerance=1e-8)


def test_relu_has_no_negative_zero() -> None:
    assert not jnp.signbit(relu(jnp.asarray([-0.0, -1.0]))).any()


def test_add_sums_and_passes_the_gradient_to_both() -> None:
    a, b = golden_normal("a", (2, 3, 3, 5)), golden_normal("b", (2, 3, 3, 5))
    check_gradients(add, a, b, tolerance=1e-8)
    y, backward = jax.vjp(add, jnp.asarray(a, jnp.float16), jnp.asarray(b, jnp.float16))
    chex.assert_trees_all_equal(y, (a.astype(np.float16) + b.astype(np.float16)))
    assert all((g == 1).all() for g in backward(jnp.ones_like(y)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: relu(np.zeros(3, np.int8)), TypeError, "dtype of x is 'int8'"),
        (lambda: relu(1.0), TypeError, "x of type float"),
        (
            lambda: add(np.zeros((2, 4), np.float32), np.zeros((1, 4), np.float32)),
            ShapeError,
            r"shape of main is \(1, 4\), expected \(2, 4\)",
        ),
        (
            lambda: add(np.zeros(4, np.float32), np.zeros(4, np.float16)),
            TypeError,
            "dtype of main is 'float16', expected float32",
        ),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
