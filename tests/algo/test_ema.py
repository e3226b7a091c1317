"""The moving average of the weights."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.ema import EMA


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_step_moves_by_one_minus_d(dtype: Any) -> None:
    e = np.array([1.0, -2.0], dtype)
    w = np.array([3.0, 2.0], dtype)
    new = EMA(0.75).update(e, w)
    assert new.tolist() == [1.5, -1.0]
    assert new.dtype == dtype


def test_closed_form_after_many_steps() -> None:
    e, rule = np.array([1.0]), EMA(0.9)
    for _ in range(20):
        e = rule.update(e, np.array([0.0]))
    assert e[0] == pytest.approx(0.9**20, rel=1e-12)


@pytest.mark.parametrize("decay", [0.9, 0.99, 0.999, 0.9999, 0.99999])
@pytest.mark.parametrize("xp", [np, jnp])
def test_equal_weights_keep_their_average(decay: float, xp: Any) -> None:
    """d and 1 - d add up to one in float32 too, or the average would drift by up to 1e-3."""
    w = xp.asarray(np.random.default_rng(0).normal(size=257).astype(np.float32))
    e = w
    for _ in range(50):
        e = EMA(decay).update(e, w, xp=xp)
    np.testing.assert_allclose(e, w, rtol=4e-6)


def test_decay_zero_copies() -> None:
    w = np.array([0.1, 0.7], np.float32)
    assert EMA(0).update(w * 3, w).tobytes() == w.tobytes()


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5, float("nan")])
def test_errors_name_the_value(decay: float) -> None:
    with pytest.raises(ValueError, match=f"EMA decay is {decay}"):
        EMA(decay)
