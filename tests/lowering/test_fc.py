"""Fully connected layers, flatten and channel padding."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import ShapeError
from renaissance.ops import channel_padding, fc, flatten
from renaissance.testing import Golden, check_gradients, golden_normal

from .support import assert_golden, drawn, load

FC = load("other_layers", "fc")
FLATTEN = load("other_layers", "flatten")


@pytest.mark.parametrize("case", FC, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_forward_and_gradients_are_golden(case: Golden, dtype: str) -> None:
    rows, features, out = (case.options[key] for key in ("rows", "in", "out"))
    inputs = {"x": drawn(case, "x", (rows, features)), "w": drawn(case, "w", (out, features))}
    if case.options["bias"]:
        inputs["b"] = drawn(case, "b", (out,))
    assert_golden(case, lambda x, w, b=None: fc(x, w, b), inputs, dtype)


@pytest.mark.parametrize("case", FLATTEN, ids=lambda case: case.name)
def test_flatten_is_golden(case: Golden) -> None:
    x = drawn(case, "x", case.options["x"])
    assert_golden(case, lambda x: flatten(x, case.options["start_dim"]), {"x": x}, "float32")


def test_a_map_of_one_pixel_is_a_flat_vector() -> None:
    x, w = golden_normal("x", (3, 5)), golden_normal("w", (4, 5))
    x, w = jnp.asarray(x, jnp.float32), jnp.asarray(w, jnp.float32)
    chex.assert_trees_all_equal(fc(x.reshape(3, 1, 1, 5), w), fc(x, w).reshape(3, 1, 1, 4))


def test_sums_of_half_precision_products_are_kept_in_single() -> None:
    ones = jnp.ones((1, 4096), jnp.float16)
    assert fc(ones, ones).item() == 4096


def test_single_precision_is_full_precision() -> None:
    # 1 + 2^-20 survives full fp32 products, not reduced ones (TF32 keeps 10 bits).
    x = jnp.full((1, 1), 1 + 2.0**-20)
    assert fc(x, jnp.ones((1, 1))).item() == 1 + 2.0**-20


def test_gradients_are_slopes() -> None:
    x, w, b = golden_normal("x", (3, 7)), golden_normal("w", (5, 7)), golden_normal("b", (5,))
    check_gradients(fc, x, w, b, tolerance=1e-8)
    with jax.enable_x64(True):
        arguments = tuple(jnp.asarray(v) for v in (x, w, b))
        chex.assert_numerical_grads(jax.jit(fc), arguments, order=1, atol=1e-6)


def test_channel_padding_appends_zeros_up_to_a_multiple_of_eight() -> None:
    x = golden_normal("x", (2, 3, 3, 5)).astype(np.float32)
    y = channel_padding(x)
    assert y.shape == (2, 3, 3, 8)
    chex.assert_trees_all_equal(y[..., :5], x)
    assert not y[..., 5:].any()
    assert channel_padding(y).shape == (2, 3, 3, 8)
    check_gradients(channel_padding, x, tolerance=1e-8)


@pytest.mark.parametrize(("channels", "padded"), [(1, 8), (7, 8), (8, 8), (9, 16), (64, 64)])
def test_padded_channel_counts(channels: int, padded: int) -> None:
    assert channel_padding(np.ones((1, 1, 1, channels), np.float16)).shape[3] == padded


X, W = np.zeros((2, 6), np.float32), np.zeros((3, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fc(X, W[:, :5]), ShapeError, r"weight is \(3, 5\).*in = 6"),
        (lambda: fc(X, W, np.zeros(4, np.float32)), ShapeError, r"bias is \(4,\), expected \(3,\)"),
        (
            lambda: fc(X.reshape(1, 2, 2, 3), W),
            ShapeError,
            r"x is \(1, 2, 2, 3\), expected .*\(N, C\)",
        ),
        (lambda: fc(X, W.astype(np.float16)), TypeError, "weight is 'float16', expected float32"),
        (lambda: flatten(X, 2), ValueError, r"start_dim is 2, expected an integer in \[1, 1\]"),
        (lambda: flatten(X[0]), ShapeError, "rank 2 or more"),
        (lambda: channel_padding(X), ShapeError, r"shape of x is \(2, 6\)"),
        (lambda: channel_padding(X[None, None], 0), ValueError, "multiple is 0"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()


def test_reduced_precision_is_used_where_it_is_asked_for() -> None:
    x, w = jnp.ones((2, 4)), jnp.ones((3, 4))
    assert "HIGHEST" in str(jax.make_jaxpr(fc)(x, w))
    with jax.default_matmul_precision("tensorfloat32"):
        assert "HIGHEST" not in str(jax.make_jaxpr(fc)(x, w))
