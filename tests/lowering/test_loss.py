"""Cross entropy and top-k hits: golden and printed numbers, ties, NaN, gradients."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import ShapeError
from renaissance.ops import (
    cross_entropy_rows,
    predicted_labels,
    softmax_cross_entropy,
    top_k_hits,
)
from renaissance.testing import Golden, check_gradients, golden_normal

from .support import assert_golden, drawn, load

CASES = load("other_layers", "cross_entropy")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loss_and_gradient_are_golden(case: Golden, dtype: str) -> None:
    options = case.options
    x = options["spread"] * drawn(case, "x", (options["rows"], options["classes"]))
    labels = np.array(options["labels"])

    def loss(x: jax.Array) -> jax.Array:
        return softmax_cross_entropy(x, labels, label_smoothing=options["label_smoothing"])

    if dtype == "float32" and case.tensors["y"] < 1e-3:
        # 1 + tiny is all that fp32 sees of such a loss: its precision is absolute.
        chex.assert_trees_all_close(loss(jnp.asarray(x, dtype)), case.tensors["y"], atol=1e-7)
    else:
        assert_golden(case, loss, {"x": x}, dtype)


def test_label_smoothing_value() -> None:
    loss = softmax_cross_entropy(jnp.asarray([[2, 1, 0.1]]), np.array([0]), label_smoothing=0.1)
    assert loss.item() == pytest.approx(0.513697, abs=5e-7)


def test_rows_add_up_to_the_mean_whatever_the_batches() -> None:
    logits = jnp.asarray(golden_normal("x", (10, 7)), jnp.float32)
    labels = np.arange(10) % 7
    rows = cross_entropy_rows(logits, labels)
    sums = [rows[a:b].sum() for a, b in ((0, 4), (4, 8), (8, 10))]
    chex.assert_trees_all_close(sum(sums) / 10, softmax_cross_entropy(logits, labels), rtol=1e-6)


def test_half_precision_logits_are_evaluated_in_single() -> None:
    logits = jnp.asarray(golden_normal("x", (4, 1000)), jnp.float16)
    labels = np.array([0, 5, 999, 3])
    loss, gradient = jax.value_and_grad(softmax_cross_entropy)(logits, labels)
    exact = softmax_cross_entropy(logits.astype(jnp.float32), labels)
    assert loss.dtype == jnp.float32
    assert gradient.dtype == jnp.float16
    chex.assert_trees_all_equal(loss, exact)


def test_large_logits_do_not_overflow() -> None:
    logits = jnp.asarray([[6e4, -6e4, 0.0]], jnp.float16)
    loss, gradient = jax.value_and_grad(softmax_cross_entropy)(logits, np.array([1]))
    assert loss == jnp.float32(jnp.float16(6e4)) * 2
    chex.assert_trees_all_equal(gradient, jnp.asarray([[1, -1, 0]], jnp.float16))


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_the_classes_is_seen(label: int) -> None:
    rows = cross_entropy_rows(jnp.zeros((2, 3)), np.array([0, label]))
    assert np.isnan(rows).tolist() == [False, True]
    assert top_k_hits(jnp.zeros((2, 3)), np.array([0, label]), 3).tolist() == [True, False]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_slopes(smoothing: float) -> None:
    labels = np.array([3, 0, 6, 6, 1])

    def loss(x: jax.Array) -> jax.Array:
        return softmax_cross_entropy(x, labels, label_smoothing=smoothing)

    x = golden_normal("x", (5, 7))
    check_gradients(loss, x, tolerance=1e-8)
    with jax.enable_x64(True):
        chex.assert_numerical_grads(jax.jit(loss), (jnp.asarray(x),), order=1, atol=1e-6)


def test_equal_logits_the_lower_index_wins() -> None:
    logits = jnp.asarray([[1.0, 1, 1, 0]] * 4)
    labels = np.arange(4)
    assert top_k_hits(logits, labels, 1).tolist() == [True, False, False, False]
    assert top_k_hits(logits, labels, 2).tolist() == [True, True, False, False]
    assert top_k_hits(logits, labels, 3).tolist() == [True, True, True, False]
    assert top_k_hits(logits, labels, 4).tolist() == [True] * 4
    assert predicted_labels(logits).tolist() == [0] * 4


def test_k_is_clamped_to_the_number_of_classes() -> None:
    logits = jnp.asarray([[3.0, 2.0, 1.0]])
    assert top_k_hits(logits, np.array([2]), 5).all()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_row_with_nan_is_a_miss(at: int) -> None:
    logits = jnp.asarray([[5.0, 1, 0], [5.0, 1, 0]]).at[0, at].set(jnp.nan)
    assert top_k_hits(logits, np.array([0, 0]), 3).tolist() == [False, True]


def test_infinite_logits_still_rank() -> None:
    logits = jnp.asarray([[jnp.inf, 1, -jnp.inf]])
    hits = [
        top_k_hits(logits, np.array([label]), k).item() for label in range(3) for k in (1, 2, 3)
    ]
    assert hits == [True, True, True, False, True, True, False, False, True]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_hits_agree_with_a_stable_sort(dtype: str) -> None:
    logits = np.round(golden_normal("x", (50, 12))).astype(dtype)
    labels = np.arange(50) % 12
    order = np.argsort(-logits, axis=1, kind="stable")
    for k in (1, 2, 5, 12):
        expected = (order[:, :k] == labels[:, None]).any(1)
        np.testing.assert_array_equal(
            jax.jit(top_k_hits, static_argnums=2)(logits, labels, k), expected
        )
    np.testing.assert_array_equal(predicted_labels(logits), order[:, 0])


Z = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: softmax_cross_entropy(Z, np.zeros(3, int)),
            ShapeError,
            r"labels is \(3,\).*\(2,\)",
        ),
        (lambda: softmax_cross_entropy(Z[0], np.zeros(3, int)), ShapeError, r"logits is \(3,\)"),
        (lambda: softmax_cross_entropy(Z, Z[:, 0]), TypeError, "dtype of labels is 'float32'"),
        (
            lambda: softmax_cross_entropy(Z, np.zeros(2, int), label_smoothing=1.0),
            ValueError,
            "label_smoothing is 1.0",
        ),
        (lambda: top_k_hits(Z, np.zeros(2, int), 0), ValueError, "k is 0"),
        (lambda: predicted_labels(Z.astype(int)), TypeError, "dtype of logits is 'int64'"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
