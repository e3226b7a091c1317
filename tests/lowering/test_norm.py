"""Batch norm: golden numbers, statistics that do not cancel, running averages, folding."""

from __future__ import annotations

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import ShapeError
from renaissance.core.philox import normal
from renaissance.ops import (
    affine,
    batch_norm_infer,
    batch_norm_train,
    batch_statistics,
    fold_batch_norm,
)
from renaissance.testing import Golden, assert_within, check_gradients, golden_normal

from .support import TOLERANCE, assert_golden, drawn, load

CASES = load("norm", "batch_norm")


def inputs_of(case: Golden) -> dict[str, np.ndarray]:
    options, shape = case.options, case.options["x"]
    channels = shape[-1:]
    return {
        "x": options["spread"] * drawn(case, "x", shape) + options["offset"],
        "w": 1 + 0.5 * drawn(case, "w", channels),
        "b": drawn(case, "b", channels),
        "mean": drawn(case, "mean", channels),
        "var": 0.5 + np.abs(drawn(case, "var", channels)),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_is_golden(case: Golden, dtype: str) -> None:
    inputs = inputs_of(case)
    settings = {key: case.options[key] for key in ("momentum", "eps")}
    running = [inputs.pop(name) for name in ("mean", "var")]

    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return batch_norm_train(x, w, b, *(v.astype(dtype) for v in running), **settings)[0]

    # fp32 inputs differ from the fp64 ones by their rounding, which normalisation magnifies.
    magnified = 1 + abs(case.options["offset"]) / case.options["spread"]
    two_values = 30 if case.name == "bn two vectors" else 1
    assert_golden(case, layer, inputs, dtype, magnified * two_values if dtype == "float32" else 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_statistics_and_inference_are_golden(case: Golden, dtype: str) -> None:
    settings = {key: case.options[key] for key in ("momentum", "eps")}
    with jax.enable_x64(dtype == "float64"):
        x, w, b, mean, var = (jnp.asarray(v, dtype) for v in inputs_of(case).values())
        _, mean, var = jax.jit(partial(batch_norm_train, **settings))(x, w, b, mean, var)
        y = jax.jit(partial(batch_norm_infer, eps=settings["eps"]))(x, w, b, mean, var)
    ours = {"mean": mean, "var": var, "infer": y}
    expected = {name: case.tensors[name] for name in ours}
    magnified = 1 + abs(case.options["offset"]) / case.options["spread"]
    assert_within(ours, expected, TOLERANCE[dtype] * (magnified if dtype == "float32" else 1))


def test_running_variance_is_unbiased() -> None:
    # Four groups of 36 values 1, 2, 3, 4.
    x = jnp.repeat(jnp.asarray([1.0, 2.0, 3.0, 4.0]), 36).reshape(4, 6, 6, 1)
    one, zero = jnp.ones(1), jnp.zeros(1)
    _, mean, var = jax.jit(batch_norm_train)(x, one, zero, zero, one)
    assert mean.item() == pytest.approx(0.25, rel=1e-6)
    assert var.item() == pytest.approx(1.025874, abs=1e-6)


def test_a_single_value_leaves_the_variance_unscaled() -> None:
    x = jnp.asarray([[3.0, -2.0]])
    one, zero = jnp.ones(2), jnp.zeros(2)
    y, mean, var = jax.jit(batch_norm_train)(x, one, 5 + zero, zero, one)
    chex.assert_trees_all_equal(y, jnp.full((1, 2), 5.0))
    chex.assert_trees_all_close(mean, jnp.asarray([0.3, -0.2]), rtol=1e-6)
    chex.assert_trees_all_close(var, jnp.asarray([0.9, 0.9]), rtol=1e-6)
    grads = jax.jit(jax.grad(lambda x: batch_norm_train(x, one, zero, zero, one)[0].sum()))(x)
    chex.assert_trees_all_equal(grads, jnp.zeros((1, 2)))


@pytest.mark.parametrize("sign", [1, -1])
def test_variance_does_not_cancel_far_from_zero(sign: int) -> None:
    x = (sign * 1e4 + 0.1 * normal(0, 65_536)).astype(np.float32).reshape(-1, 1)
    mean, var = jax.jit(batch_statistics)(x)
    assert var.item() == pytest.approx(0.00999, rel=0.01)
    assert var.item() == pytest.approx(x.astype(np.float64).var(), rel=1e-4)
    assert mean.item() == pytest.approx(sign * 1e4, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4, -3e4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_variance_of_equal_values_is_zero_never_negative(value: float, dtype: str) -> None:
    mean, var = jax.jit(batch_statistics)(jnp.full((4, 9, 7, 3), value, dtype))
    assert (var == 0).all()
    assert mean.dtype == var.dtype == jnp.float32
    chex.assert_trees_all_equal(mean, jnp.full(3, jnp.asarray(value, dtype), jnp.float32))


@pytest.mark.parametrize("where", [(0, 0, 0), (1, 3, 3), (3, 7, 7)])
def test_an_outlier_where_the_pivot_is_taken_does_no_harm(where: tuple[int, ...]) -> None:
    x = golden_normal("x", (4, 8, 8, 2)).astype(np.float32)
    x[where] = 1e4
    _, var = jax.jit(batch_statistics)(x)
    # what adding 256 values one after the other may cost
    assert_within(var, x.astype(np.float64).reshape(-1, 2).var(0), 3e-6)


def test_half_precision_keeps_statistics_in_single() -> None:
    # Sums of squares near 1e6 * 1000 would overflow fp16.
    x = jnp.asarray(1000 + golden_normal("x", (8, 16, 16, 3)), jnp.float16)
    vectors = [jnp.ones(3), jnp.zeros(3), jnp.zeros(3), jnp.ones(3)]
    y, mean, var = jax.jit(batch_norm_train)(x, *vectors)
    exact, mean32, var32 = jax.jit(batch_norm_train)(x.astype(jnp.float32), *vectors)
    assert y.dtype == jnp.float16
    assert mean.dtype == var.dtype == jnp.float32
    chex.assert_trees_all_close((mean, var), (mean32, var32), rtol=1e-6)
    assert_within(y, exact, 5e-4)


def test_half_precision_gradients_of_scale_and_shift_are_single() -> None:
    x = jnp.asarray(golden_normal("x", (64, 16, 16, 2)), jnp.float16)
    zero, one = jnp.zeros(2), jnp.ones(2)

    def total(w: jax.Array, b: jax.Array) -> jax.Array:
        y = batch_norm_train(x, w, b, zero, one)[0]
        return jnp.sum(y, dtype=jnp.float32) * 8

    dw, db = jax.jit(jax.grad(total, (0, 1)))(one, zero)
    assert dw.dtype == db.dtype == jnp.float32
    chex.assert_trees_all_equal(db, jnp.full(2, 131_072.0))  # beyond fp16


@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (7, 6)])
def test_gradients_are_slopes(shape: tuple[int, ...]) -> None:
    x, w, b = golden_normal("x", shape), golden_normal("w", (6,)), golden_normal("b", (6,))

    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return batch_norm_train(x, w, b, jnp.zeros(6), jnp.ones(6))[0]

    check_gradients(layer, x, w, b, tolerance=1e-7)
    with jax.enable_x64(True):
        arguments = tuple(jnp.asarray(v) for v in (x, w, b))
        chex.assert_numerical_grads(jax.jit(layer), arguments, order=1, atol=1e-5, modes=["rev"])


def test_inference_is_the_folded_affine_map() -> None:
    x = golden_normal("x", (2, 3, 3, 5)).astype(np.float32)
    w, b, mean = (golden_normal(n, (5,)).astype(np.float32) for n in ("w", "b", "mean"))
    var = np.abs(golden_normal("var", (5,))).astype(np.float32)
    scale, shift = fold_batch_norm(w, b, mean, var, eps=1e-3)
    assert_within(scale, w / np.sqrt(var + 1e-3), 1e-6)
    assert_within(shift, b - mean * w / np.sqrt(var + 1e-3), 1e-6)
    y = batch_norm_infer(x, w, b, mean, var, eps=1e-3)
    chex.assert_trees_all_equal(y, affine(x, scale, shift))
    assert_within(y, (x - mean) / np.sqrt(var + 1e-3) * w + b, 1e-6)


def test_no_gradient_reaches_the_running_statistics() -> None:
    x, one, zero = jnp.asarray(golden_normal("x", (8, 3)), jnp.float32), jnp.ones(3), jnp.zeros(3)

    def running(x: jax.Array, mean: jax.Array) -> jax.Array:
        return sum(v.sum() for v in batch_norm_train(x, one, zero, mean, one)[1:])

    chex.assert_trees_all_equal(
        jax.grad(running, (0, 1))(x, zero), (jnp.zeros((8, 3)), jnp.zeros(3))
    )


X, V = np.ones((2, 3, 3, 4), np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: batch_norm_train(X, V[:3], V, V, V), ShapeError, r"shape of weight is \(3,\)"),
        (lambda: batch_norm_train(X, V, V, V, V[:1]), ShapeError, r"running_var is \(1,\)"),
        (lambda: batch_norm_train(V, V, V, V, V), ShapeError, r"shape of x is \(4,\)"),
        (lambda: batch_norm_train(X[:0], V, V, V, V), ShapeError, r"shape of x is \(0, 3, 3, 4\)"),
        (lambda: batch_norm_train(X, V, V, V, V, momentum=1.5), ValueError, "momentum is 1.5"),
        (lambda: batch_norm_train(X, V, V, V, V, eps=0), ValueError, "eps is 0"),
        (lambda: batch_norm_infer(X, V, V, V, V, eps=-1.0), ValueError, "eps is -1.0"),
        (lambda: affine(X, V, V.astype(int)), TypeError, "dtype of shift is 'int64'"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
