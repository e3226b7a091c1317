"""Implementations that agree pass; where they part, the tensor is named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import renaissance as rn
from renaissance.runtime import library
from renaissance.testing import (
    assert_functions_agree,
    assert_lowerings_agree,
    assert_programs_agree,
    golden_normal,
    random_batch,
)

X, W = golden_normal("x", (4, 6)), golden_normal("w", (5, 6))
MODEL = rn.seq(rn.cbr(4, 3, 1, 1), rn.gap(), rn.fc(3))


def matmul(x: Any, w: Any) -> jax.Array:
    return x @ w.T


def test_functions_that_agree_pass() -> None:
    x, w = X.astype(np.float32), W.astype(np.float32)
    assert_functions_agree(rn.ops.fc, matmul, x, w, tolerance=1e-6)


def test_an_output_that_differs_is_named() -> None:
    with pytest.raises(AssertionError, match="output 0 differs by 0.1"):
        assert_functions_agree(lambda x: jnp.asarray(1.1 * x), lambda x: x, X)


def test_a_gradient_that_differs_is_named() -> None:
    def stopped(x: Any, w: Any) -> jax.Array:
        return x @ jax.lax.stop_gradient(w).T

    with pytest.raises(AssertionError, match=r"gradient of argument \[1\] differs by 1,"):
        assert_functions_agree(stopped, matmul, X, W)


def test_a_lowering_agrees_with_itself() -> None:
    assert_lowerings_agree(MODEL, (5, 5, 3), 4, lowerings=("xla", "xla"), steps=2, tolerance=0.0)


@pytest.mark.skipif(not library.status().custom_calls, reason="needs the native library")
def test_the_fused_lowering_agrees_with_the_reference() -> None:
    model = rn.seq(rn.flatten(), rn.fc(16), rn.relu(), rn.dropout(0.3), rn.fc(5))
    assert_lowerings_agree(model, (4, 4, 3), 6)


def test_programs_that_differ_are_told_apart_where_they_part() -> None:
    def program(**options: Any) -> Any:
        rate = {"scheduler": rn.Constant(0.1), "lowering": "xla"}
        return rn.compile(MODEL, (5, 5, 3), 4, **(rate | options))

    plain = program()
    with pytest.raises(AssertionError, match="^after step 1: .* differs"):
        assert_programs_agree(program(optimizer=rn.SGD(weight_decay=0.5)), plain, steps=1)
    with pytest.raises(AssertionError, match="^initial weights: .*weight differs"):
        assert_programs_agree(program(initializer=rn.KaimingNormal()), plain, steps=1)
    with pytest.raises(AssertionError, match="^inference: loss differs"):
        smoothed = program(loss=rn.CrossEntropy(label_smoothing=0.3))
        assert_programs_agree(smoothed, program(), steps=1, tolerance=1e-3)


def test_programs_of_different_inputs_are_refused() -> None:
    small, large = (rn.compile(MODEL, (size, size, 3), 4) for size in (5, 6))
    with pytest.raises(ValueError, match=r"expected \(4, 6, 6, 3\)"):
        assert_programs_agree(small, large)


def test_random_batches_are_a_function_of_seed_and_step() -> None:
    images, labels = random_batch((64, 3, 3, 2), 5, seed=1, step=0)
    again, _ = random_batch((64, 3, 3, 2), 5, seed=1, step=0)
    other, _ = random_batch((64, 3, 3, 2), 5, seed=1, step=1)
    np.testing.assert_array_equal(images, again)
    assert (images != other).any()
    assert images.dtype == np.float32
    assert set(labels.tolist()) == set(range(5))
