"""Pooling: golden numbers with and without ties, padding, one winner, sizes, errors."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.core.errors import ShapeError
from renaissance.ops import average_pool, global_average_pool, max_pool, pool_output_shape
from renaissance.testing import Golden, check_gradients, golden_normal

from .support import assert_golden, drawn, load

CASES = load("pool", "max_pool", "average_pool", "global_average_pool")

WINDOWS = [case for case in CASES if "kernel" in case.options]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_and_gradients_are_golden(case: Golden) -> None:
    options = case.options
    x = drawn(case, "x", options["x"])
    if options["layer"] == "global_average_pool":
        layer = global_average_pool
    else:
        pool = {"max_pool": max_pool, "average_pool": average_pool}[options["layer"]]
        window = {key: options[key] for key in ("kernel", "stride", "pad")}
        layer = lambda x: pool(x, **window)  # noqa: E731
    assert_golden(case, layer, {"x": np.round(x) if options.get("ties") else x}, "float32")


@pytest.mark.parametrize("case", WINDOWS[::7], ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_precisions_pool_the_same_windows(case: Golden, dtype: str) -> None:
    options = case.options
    pool = {"max_pool": max_pool, "average_pool": average_pool}[options["layer"]]
    window = {key: options[key] for key in ("kernel", "stride", "pad")}
    x = drawn(case, "x", options["x"])
    x = np.round(x) if options.get("ties") else x
    assert_golden(case, lambda x: pool(x, **window), {"x": x}, dtype)


def test_max_pool_pads_with_minus_infinity() -> None:
    y = max_pool(jnp.full((1, 2, 2, 1), -5.0), kernel=2, stride=2, pad=1)
    chex.assert_trees_all_equal(y, jnp.full((1, 2, 2, 1), -5.0))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_tie_has_one_winner_the_first_in_row_major_order(dtype: str) -> None:
    def total(x: jax.Array) -> jax.Array:
        return max_pool(x, kernel=3, stride=2, pad=1).sum()

    dx = jax.jit(jax.grad(total))(jnp.zeros((1, 4, 4, 1), dtype))
    expected = np.zeros((4, 4))
    expected[:2, :2] = 1
    np.testing.assert_array_equal(dx[0, :, :, 0], expected)


def test_windows_that_share_a_winner_add_up() -> None:
    x = np.zeros((1, 5, 5, 1), np.float32)
    x[0, 2, 2, 0] = 1
    dx = jax.jit(jax.grad(lambda x: max_pool(x, kernel=3, stride=1, pad=1).sum()))(jnp.asarray(x))
    assert dx[0, 2, 2, 0] == 9
    assert dx.sum() == 25


def test_rows_that_no_window_reaches_get_no_gradient() -> None:
    x = jnp.asarray(golden_normal("x", (1, 8, 8, 1)), jnp.float32)
    dx = jax.jit(jax.grad(lambda x: max_pool(x, kernel=2, stride=3).sum()))(x)
    assert dx.sum() == 9
    assert not dx[:, [2, 5]].any()
    assert not dx[:, :, [2, 5]].any()


def test_nan_is_not_hidden() -> None:
    x = jnp.zeros((1, 4, 4, 1)).at[0, 1, 1, 0].set(jnp.nan)
    y, backward = jax.vjp(lambda x: max_pool(x, kernel=2, stride=2), x)
    (dx,) = backward(jnp.full_like(y, 2.0))
    assert jnp.isnan(y[0, 0, 0, 0])
    assert dx[0, 1, 1, 0] == 2


def test_average_pool_counts_real_pixels_only() -> None:
    y = average_pool(jnp.ones((1, 3, 5, 2)), kernel=3, stride=2, pad=1)
    chex.assert_trees_all_close(y, jnp.ones((1, 2, 3, 2)), rtol=1e-6)


def test_means_of_half_precision_are_summed_in_single() -> None:
    x = jnp.full((1, 64, 64, 1), 60.0, jnp.float16)  # their sum is beyond fp16
    assert global_average_pool(x).item() == 60
    assert average_pool(x, kernel=64, stride=1).item() == 60


@pytest.mark.parametrize("pool", [max_pool, average_pool])
def test_gradients_are_slopes(pool) -> None:  # type: ignore[no-untyped-def]
    x = golden_normal("x", (2, 6, 7, 3))
    check_gradients(lambda x: pool(x, kernel=3, stride=2, pad=1), x, tolerance=1e-8)


def test_global_average_gradients_are_slopes() -> None:
    check_gradients(global_average_pool, golden_normal("x", (2, 3, 5, 4)), tolerance=1e-8)


def test_forward_mode_agrees_with_reverse_mode() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(golden_normal("x", (1, 5, 5, 2)))
        pool = jax.jit(lambda x: max_pool(x, kernel=3, stride=2, pad=1))
        chex.assert_numerical_grads(pool, (x,), order=1, atol=1e-6)


@given(
    extent=st.integers(1, 30),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 5),
    pad=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_output_size_counts_the_windows_that_fit(
    extent: int, kernel: int, stride: int, pad: int
) -> None:
    windows = len(range(0, extent + 2 * pad - kernel + 1, stride))
    arguments = (1, extent, extent, 2), kernel, stride, pad
    if 2 * pad > kernel:
        with pytest.raises(ValueError, match="half the window"):
            pool_output_shape(*arguments)
    elif windows < 1:
        with pytest.raises(ShapeError, match="expected at least 1"):
            pool_output_shape(*arguments)
    else:
        assert pool_output_shape(*arguments) == (1, windows, windows, 2)


X = np.zeros((1, 4, 4, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: max_pool(X, kernel=3, stride=1, pad=2), ValueError, "pad of a window of 3 is 2"),
        (
            lambda: max_pool(X, kernel=5, stride=1),
            ShapeError,
            "output height for input 4, kernel 5",
        ),
        (lambda: average_pool(X, kernel=0, stride=1), ValueError, "kernel is 0"),
        (lambda: average_pool(X, kernel=2, stride=0), ValueError, "stride is 0"),
        (lambda: global_average_pool(X[0]), ShapeError, r"shape of x is \(4, 4, 2\)"),
        (lambda: max_pool(X.astype(int), kernel=2, stride=2), TypeError, "dtype of x is 'int64'"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
