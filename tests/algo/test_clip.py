"""Clipping by value and by global norm; a norm that cannot overflow."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue, norm, scaled_norm

NAMESPACES = pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])


@NAMESPACES
def test_by_value_clamps_both_sides(xp: Any) -> None:
    g = xp.asarray(np.array([-3.0, -0.5, 0.0, 0.5, 3.0], np.float32))
    (clipped,) = ClipByValue(0.5).clip([g], xp=xp)
    assert clipped.tolist() == [-0.5, -0.5, 0.0, 0.5, 0.5]
    assert clipped.dtype == np.float32


@NAMESPACES
def test_by_global_norm_survives_squares_beyond_float32(xp: Any) -> None:
    gradients = [xp.full((1,), 1e20, np.float32) for _ in range(100)]
    for g in ClipByGlobalNorm(1.0).clip(gradients, xp=xp):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, 0.1, rtol=3e-7)


# no subnormal numbers under jax: a compiler may flush them to zero
@pytest.mark.parametrize(
    ("size", "xp"),
    [(s, xp) for xp in (np, jnp) for s in (1e-37, 1e-20, 1.0, 1e20, 3e38)]
    + [(1e-44, np), (1e-38, np)],
)
@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 100.0])
def test_by_global_norm_at_every_magnitude(size: float, max_norm: float, xp: Any) -> None:
    values = np.array([3.0, 4.0], np.float32) / 5 * np.float32(size)
    exact = values.astype(np.float64)
    length = math.sqrt(float((exact**2).sum()))
    expected = exact * min(1.0, max_norm / length)
    clipped = ClipByGlobalNorm(max_norm).clip([xp.asarray(v[None]) for v in values], xp=xp)
    np.testing.assert_allclose(np.concatenate(clipped), expected, rtol=4e-7)


@NAMESPACES
def test_a_norm_within_the_limit_keeps_every_bit(xp: Any) -> None:
    random = np.random.default_rng(0)
    gradients = [random.normal(size=s).astype(np.float32) for s in ((3, 4), (7,))]
    clipped = ClipByGlobalNorm(1e3).clip([xp.asarray(g) for g in gradients], xp=xp)
    assert [np.asarray(g).tobytes() for g in clipped] == [g.tobytes() for g in gradients]


@NAMESPACES
def test_all_zero_and_no_gradients(xp: Any) -> None:
    (zero,) = ClipByGlobalNorm(1.0).clip([xp.zeros((3,), np.float32)], xp=xp)
    assert zero.tolist() == [0, 0, 0]
    assert ClipByGlobalNorm(1.0).clip([], xp=xp) == []


def test_by_global_norm_in_float64() -> None:
    random = np.random.default_rng(1)
    gradients = [random.normal(size=s) for s in ((3, 4), (7,), ())]
    length = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    clipped = ClipByGlobalNorm(0.5).clip(gradients)
    for ours, g in zip(clipped, gradients, strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, g * 0.5 / length, rtol=1e-14)


@pytest.mark.parametrize("rule", [ClipByValue(0.5), ClipByGlobalNorm(0.5)])
def test_jit_gives_the_same(rule: Any) -> None:
    g = [np.linspace(-2, 2, 11, dtype=np.float32), np.ones((2, 2), np.float32)]
    for ours, jaxs in zip(rule.clip(g), jax.jit(lambda g: rule.clip(g, xp=jnp))(g), strict=True):
        np.testing.assert_allclose(jaxs, ours, rtol=3e-7)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=20),
    st.integers(-100, 120),
)
def test_the_norm_is_right_and_scales_exactly(values: list[float], exponent: int) -> None:
    x = np.ldexp(np.array(values, np.float32), exponent)
    exact = math.sqrt(math.fsum(float(v) ** 2 for v in x))
    if exact < 1e-36:
        return
    assert float(norm(x)) == pytest.approx(exact, rel=1e-6)


def test_a_power_of_two_scales_the_norm_without_rounding() -> None:
    x = np.random.default_rng(2).normal(size=37).astype(np.float32)
    plain = np.sqrt(np.sum(np.square(x)))
    assert norm(x) == plain
    for exponent in (-120, -80, -51, -10, 10, 51, 80, 120):
        assert norm(np.ldexp(x, exponent)) == np.ldexp(plain, exponent)


@pytest.mark.parametrize("exponent", [-1000, -401, 0, 401, 1000])
def test_the_norm_in_float64_has_its_own_range(exponent: int) -> None:
    x = np.ldexp(np.array([3.0, -4.0]), exponent)
    assert norm(x) == np.ldexp(5.0, exponent)


@NAMESPACES
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_infinite_or_nan_gradients_stay_visible(bad: float, xp: Any) -> None:
    length, _ = scaled_norm([xp.asarray(np.array([1.0, bad], np.float32))], xp=xp)
    assert not np.isfinite(length)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("rule", [ClipByValue, ClipByGlobalNorm])
def test_errors_name_the_value(rule: Any, value: float) -> None:
    with pytest.raises(ValueError, match=f"{rule.__name__} max_.* is {value}"):
        rule(value)
