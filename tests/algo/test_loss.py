"""Cross entropy with label smoothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.loss import CrossEntropy


def test_printed_value() -> None:
    loss = CrossEntropy(0.1).row_losses(np.array([[2.0, 1.0, 0.1]]), np.array([0]))
    np.testing.assert_allclose(loss, [0.513697], atol=5e-7)


def test_golden_losses_and_gradients(golden: dict[str, Any]) -> None:
    for case in golden["losses"]:
        rule = CrossEntropy(case["smoothing"])
        logits, labels = np.array(case["logits"]), np.array(case["labels"])
        np.testing.assert_allclose(
            rule.row_losses(logits, labels), case["losses"], rtol=1e-13, atol=1e-14
        )
        gradient = rule.logits_gradient(logits, labels)
        np.testing.assert_allclose(gradient, case["gradient"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e30])
def test_large_logits_stay_finite(smoothing: float, size: float) -> None:
    logits = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]], np.float32) * np.float32(size)
    loss = CrossEntropy(smoothing).row_losses(logits, np.array([0, 2]))
    assert np.isfinite(loss).all()
    assert loss[1] == pytest.approx(np.log(3), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_jax_runs_the_same_formula_and_its_derivative(smoothing: float) -> None:
    rule = CrossEntropy(smoothing)
    logits = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    labels = np.array([0, 4, 2, 2, 1, 3])
    loss, gradient = jax.value_and_grad(lambda x: rule.row_losses(x, labels, xp=jnp).sum())(logits)
    assert float(loss) == pytest.approx(float(rule.row_losses(logits, labels).sum()), rel=1e-6)
    np.testing.assert_allclose(gradient, rule.logits_gradient(logits, labels), atol=3e-7)


def test_an_epoch_does_not_depend_on_its_batches() -> None:
    logits = np.random.default_rng(3).normal(size=(10, 4))
    labels = np.arange(10) % 4
    rows = CrossEntropy(0.1).row_losses(logits, labels)
    cut = [CrossEntropy(0.1).row_losses(logits[a:b], labels[a:b]) for a, b in ((0, 4), (4, 10))]
    np.testing.assert_array_equal(np.concatenate(cut), rows)


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_errors_name_the_value(value: float) -> None:
    with pytest.raises(ValueError, match=f"label_smoothing is {value}"):
        CrossEntropy(value)
