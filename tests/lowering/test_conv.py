"""Convolutions: golden numbers of a sweep, exact sizes, gradients, errors."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.core.errors import ShapeError
from renaissance.ops import conv, conv_output_shape, depthwise_conv, group_conv
from renaissance.testing import Golden, assert_within, check_gradients, golden_normal

from .support import assert_golden, drawn, load

CASES = load("conv", "conv")


def assert_case(case: Golden, dtype: str) -> None:
    options = case.options
    inputs = {name: drawn(case, name, options[name]) for name in ("x", "w")}
    window = {key: options[key] for key in ("groups", "stride", "pad")}
    assert_golden(case, lambda x, w: group_conv(x, w, **window), inputs, dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_and_gradients_are_golden(case: Golden) -> None:
    assert_case(case, "float32")


# The shapes take the same path in every dtype, and fp64 convolutions are slow to compile.
@pytest.mark.parametrize("case", CASES[1::5], ids=lambda case: case.name)
def test_double_precision_is_golden_too(case: Golden) -> None:
    assert_case(case, "float64")


@pytest.mark.parametrize("case", CASES[::5], ids=lambda case: case.name)
def test_half_precision_is_rounded_once(case: Golden) -> None:
    assert_case(case, "float16")


def test_sums_of_half_precision_products_are_kept_in_single() -> None:
    # 4096 ones: an fp16 running sum of such products would stop at 2048.
    x, w = jnp.ones((1, 1, 1, 4096), jnp.float16), jnp.ones((1, 1, 1, 4096), jnp.float16)
    assert conv(x, w).item() == 4096


def test_padding_is_symmetric() -> None:
    x = jnp.asarray([1.0, 2, 3, 4]).reshape(1, 1, 4, 1)
    w = jnp.asarray([1.0, 0, 0]).reshape(1, 1, 3, 1)
    y = conv(x, w, stride=(1, 2), pad=(0, 1))
    chex.assert_trees_all_equal(y.ravel(), jnp.asarray([0.0, 2.0]))


@given(
    extent=st.integers(1, 40),
    kernel=st.integers(1, 9),
    stride=st.integers(1, 5),
    pad=st.integers(0, 4),
)
@settings(max_examples=80, deadline=None)
def test_output_size_counts_the_windows_that_fit(
    extent: int, kernel: int, stride: int, pad: int
) -> None:
    windows = len(range(0, extent + 2 * pad - kernel + 1, stride))
    shapes = (1, extent, extent, 2), (3, kernel, kernel, 2)
    if windows < 1:
        with pytest.raises(ShapeError, match="expected at least 1"):
            conv_output_shape(*shapes, stride, pad)
    else:
        assert conv_output_shape(*shapes, stride, pad) == (1, windows, windows, 3)


def test_a_depthwise_convolution_filters_each_channel_alone() -> None:
    x, w = golden_normal("x", (2, 5, 6, 3)), golden_normal("w", (3, 3, 3, 1))
    with jax.enable_x64(True):
        whole = depthwise_conv(jnp.asarray(x), jnp.asarray(w), stride=2, pad=1)
        alone = [
            conv(jnp.asarray(x[..., c : c + 1]), jnp.asarray(w[c : c + 1]), stride=2, pad=1)
            for c in range(3)
        ]
    assert_within(whole, np.concatenate(alone, -1), 1e-14)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gradients_are_slopes(groups: int) -> None:
    x, w = golden_normal("x", (2, 5, 4, 8)), golden_normal("w", (4, 3, 3, 8 // groups))
    check_gradients(lambda x, w: group_conv(x, w, groups=groups, stride=2, pad=1), x, w)


def test_chex_finds_the_same_slopes() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(golden_normal("x", (1, 4, 5, 3)))
        w = jnp.asarray(golden_normal("w", (3, 3, 3, 1)))
        function = lambda x, w: depthwise_conv(x, w, pad=1)  # noqa: E731
        chex.assert_numerical_grads(function, (x, w), order=1, atol=1e-6)


def test_it_can_be_mapped_over_an_axis() -> None:
    x, w = golden_normal("x", (3, 2, 5, 5, 4)), golden_normal("w", (3, 6, 3, 3, 4))
    x, w = jnp.asarray(x, jnp.float32), jnp.asarray(w, jnp.float32)
    mapped = jax.vmap(lambda x, w: conv(x, w, pad=1))(x, w)
    each = jnp.stack([conv(x[i], w[i], pad=1) for i in range(3)])
    assert_within(mapped, each, 1e-6)


def test_fp32_masters_are_rounded_for_half_precision_maps() -> None:
    x, w = golden_normal("x", (1, 4, 4, 8)), golden_normal("w", (8, 3, 3, 8))
    x, w = jnp.asarray(x, jnp.float16), jnp.asarray(w, jnp.float32)
    chex.assert_trees_all_equal(conv(x, w), conv(x, w.astype(jnp.float16)))


X = np.zeros((2, 5, 5, 6), np.float32)
W = np.zeros((4, 3, 3, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: conv(X[0], W),
            ShapeError,
            r"shape of x is \(5, 5, 6\), expected .*\(N, H, W, C\)",
        ),
        (lambda: conv(X, W[0]), ShapeError, r"shape of weight is \(3, 3, 6\)"),
        (
            lambda: conv(X, W[..., :5]),
            ShapeError,
            r"for x \(2, 5, 5, 6\) in 1 groups is 5, expected 6",
        ),
        (lambda: group_conv(X, W, groups=5), ShapeError, "C=6 and K=4 is 5, expected a divisor"),
        (lambda: group_conv(X, W, groups=0), ValueError, "groups is 0"),
        (lambda: depthwise_conv(X, W), ShapeError, r"weight is \(4, 3, 3, 6\).* with C = 6"),
        (lambda: conv(X[:, :2], W), ShapeError, "output height for input 2, kernel 3.* is 0"),
        (lambda: conv(X, W, stride=0), ValueError, "stride is 0"),
        (lambda: conv(X, W, pad=-1), ValueError, "pad is -1"),
        (lambda: conv(X, W, stride=(1, 2, 3)), ValueError, r"stride is \(1, 2, 3\)"),
        (lambda: conv(X, W, pad=0.5), TypeError, "pad is 0.5"),
        (lambda: conv(X.astype(np.int32), W), TypeError, "dtype of x is 'int32'"),
        (lambda: conv(X, W.astype(np.float16)), TypeError, "weight is 'float16', expected float32"),
        (lambda: conv([[1.0]], W), TypeError, "x of type list"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
