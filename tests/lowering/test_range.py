"""Operations over runs of regions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.lowering import range as ranges


def tensors(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"a": (3, 1, 1, 5), "b": (7,), "c": ()}
    return {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def as_jax(values: dict[str, Any]) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in values.items()}


def test_clear() -> None:
    cleared = ranges.clear(as_jax({**tensors(), "nan": np.full(3, np.nan, np.float16)}))
    assert all(not np.asarray(x).any() for x in cleared.values())
    assert cleared["nan"].dtype == np.float16 and cleared["a"].shape == (3, 1, 1, 5)


def test_cast_rounds_to_nearest_even() -> None:
    x = {"x": jnp.asarray([1 + 2**-11, 1 + 3 * 2**-11, 65520.0, 1e-8], jnp.float32)}
    assert ranges.cast(x, jnp.float16)["x"].tolist() == [1, 1 + 2**-9, np.inf, 0]
    halves = as_jax(tensors(np.float16))
    back = ranges.cast(ranges.cast(halves, jnp.float32), jnp.float16)
    assert all((back[n] == halves[n]).all() for n in halves)


@pytest.mark.parametrize("joined", [0, ranges.JOINED_ELEMENTS])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_one_bad_element_anywhere_is_found(
    dtype: Any, bad: float, joined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "JOINED_ELEMENTS", joined)
    check = jax.jit(lambda tensors: ranges.all_finite(tensors))
    assert bool(check(as_jax(tensors(dtype))))
    for name, value in tensors(dtype).items():
        for index in range(value.size):
            broken = tensors(dtype)
            broken[name].reshape(-1)[index] = bad
            flag = check(as_jax(broken))
            assert flag.shape == () and flag.dtype == np.bool_
            assert not bool(flag)


def test_the_largest_finite_number_is_finite_and_no_tensors_are_too() -> None:
    assert bool(ranges.all_finite({"x": jnp.asarray([65504.0], jnp.float16)}))
    assert bool(ranges.all_finite({}))


def test_tensors_of_several_types_are_checked_one_by_one() -> None:
    mixed = {"a": jnp.ones(3, jnp.float16), "b": jnp.asarray([1.0, jnp.nan], jnp.float32)}
    assert not bool(ranges.all_finite(mixed))


@pytest.mark.parametrize("exponent", [0, 1, 15, 24])
def test_unscale_rounds_nothing(exponent: int) -> None:
    scale = np.float32(2.0**exponent)
    scaled = as_jax({n: x * scale for n, x in tensors().items()})
    unscaled = jax.jit(ranges.unscale)(scaled, jnp.float32(scale))
    for name, x in tensors().items():
        assert unscaled[name].dtype == np.float32
        assert np.asarray(unscaled[name]).tobytes() == x.tobytes()


def test_clip_by_value_after_unscaling() -> None:
    scaled = {"x": jnp.asarray([-8192.0, 1024.0, 8192.0], jnp.float32)}
    unscaled = ranges.unscale(scaled, jnp.float32(4096.0))
    assert ranges.clip(unscaled, ClipByValue(1.0))["x"].tolist() == [-1.0, 0.25, 1.0]


def test_clip_by_global_norm_is_joint() -> None:
    gradients = {str(i): jnp.full((1,), 1e20, jnp.float32) for i in range(100)}
    clipped = jax.jit(lambda g: ranges.clip(g, ClipByGlobalNorm(1.0)))(gradients)
    assert clipped.keys() == gradients.keys()
    np.testing.assert_allclose(np.concatenate(list(clipped.values())), 0.1, rtol=6e-7)


def test_ema() -> None:
    e, w = {"x": jnp.asarray([1.0, -2.0])}, {"x": jnp.asarray([3.0, 2.0]), "y": jnp.zeros(2)}
    assert ranges.ema(e, w, 0.75)["x"].tolist() == [1.5, -1.0]


def test_accumulated_metrics_are_sums_over_rows() -> None:
    """Batches of 4, 4 and 2 rows with means 1, 1 and 4 have the epoch mean 1.6."""
    sums = {n: jnp.float32(0) for n in ("loss", "top1", "top5", "count")}
    for rows, mean in ((4, 1.0), (4, 1.0), (2, 4.0)):
        result = {"loss": rows * mean, "top1": 1.0, "top5": float(rows), "count": float(rows)}
        sums = ranges.accumulate(sums, {n: jnp.float32(x) for n, x in result.items()})
    assert {n: float(x) for n, x in sums.items()} == {
        "loss": 16.0,
        "top1": 3.0,
        "top5": 10.0,
        "count": 10.0,
    }
    assert float(sums["loss"] / sums["count"]) == pytest.approx(1.6)


@pytest.mark.parametrize("flag", [True, False])
def test_select_takes_one_side_bit_for_bit(flag: bool) -> None:
    old = {**tensors(), "n": np.int32(7), "z": np.array([-0.0, np.nan], np.float32)}
    new = {name: value * 0 + np.asarray(np.nan).astype(value.dtype) for name, value in old.items()
           if name != "n"}  # fmt: skip
    new["n"] = np.int32(8)
    chosen = jax.jit(ranges.select)(jnp.bool_(flag), new, old)
    for name, value in (new if flag else old).items():
        assert np.asarray(chosen[name]).tobytes() == np.asarray(value).tobytes()


def test_select_refuses_different_names() -> None:
    x = jnp.zeros(1)
    with pytest.raises(ValueError, match=r"\['b', 'c'\] are in only one of new and old"):
        ranges.select(jnp.bool_(True), {"a": x, "b": x}, {"a": x, "c": x})
