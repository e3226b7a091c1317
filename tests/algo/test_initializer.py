"""Initial weights: exact spreads, own streams, the same bits everywhere."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from renaissance.algo import initializer as init
from renaissance.algo.initializer import (
    ConstantInit,
    Initializer,
    KaimingNormal,
    KaimingUniform,
    Normal,
    TruncatedNormal,
    XavierNormal,
    XavierUniform,
    Zeros,
    initial_weights,
)
from renaissance.core import philox
from renaissance.core.types import WeightGroup

RANDOM: list[Initializer] = [
    KaimingUniform(),
    KaimingNormal(),
    XavierUniform(),
    XavierNormal(),
    TruncatedNormal(),
    Normal(),
]
CONV, FC = (96, 3, 5, 32), (200, 500)


def test_fans_and_gains_agree_with_the_golden_ones(golden: dict[str, Any]) -> None:
    for case in golden["spreads"]:
        shape = tuple(case["shape"])
        assert init.fans(shape) == (case["fan_in"], case["fan_out"])
        assert init.fan_of(shape, "avg") == (case["fan_in"] + case["fan_out"]) / 2
        assert pytest.approx(case["relu_gain"], rel=1e-15) == init.RELU_GAIN
        assert init.gain_for_slope(0.01) == pytest.approx(case["leaky_gain"], rel=1e-15)


def bound(b: float) -> tuple[float, float]:
    """Deviation and largest magnitude of a uniform distribution in [-b, b)."""
    return b / math.sqrt(3), b


@pytest.mark.parametrize("shape", [CONV, FC])
@pytest.mark.parametrize(
    ("rule", "spread"),
    [
        (KaimingUniform(), lambda i, o: bound(math.sqrt(2) * math.sqrt(3 / i))),
        (KaimingUniform("out"), lambda i, o: bound(math.sqrt(2) * math.sqrt(3 / o))),
        (KaimingUniform("avg", 1.0), lambda i, o: bound(math.sqrt(3 / ((i + o) / 2)))),
        (KaimingNormal(), lambda i, o: (math.sqrt(2 / i), math.inf)),
        (KaimingNormal("out", 1.0), lambda i, o: (math.sqrt(1 / o), math.inf)),
        (XavierUniform(), lambda i, o: bound(math.sqrt(6 / (i + o)))),
        (XavierUniform(2.0), lambda i, o: bound(2 * math.sqrt(6 / (i + o)))),
        (XavierNormal(), lambda i, o: (math.sqrt(2 / (i + o)), math.inf)),
        # the deviation of a normal cut at two sigma is 0.87962566 sigma
        (
            TruncatedNormal(3.0, "out"),
            lambda i, o: (0.87962566 * math.sqrt(3 / o), 2 * math.sqrt(3 / o)),
        ),
        (Normal(0.3), lambda i, o: (0.3, math.inf)),
    ],
    ids=lambda x: repr(x) if not callable(x) else "",
)
def test_spreads(
    rule: Initializer, spread: Callable[[int, int], tuple[float, float]], shape: tuple[int, ...]
) -> None:
    w = rule.draw(shape, seed=1, index=0)
    deviation, largest = spread(*init.fans(shape))
    assert w.shape == shape and w.dtype == np.float32
    assert float(w.std()) == pytest.approx(deviation, rel=0.02)
    assert float(w.mean()) == pytest.approx(0, abs=0.02 * deviation)
    assert np.abs(w).max() <= np.float32(largest)
    if math.isfinite(largest):
        assert np.abs(w).max() > 0.99 * largest


def test_values_are_those_of_the_philox_stream() -> None:
    key = {"operation": 7, "step": philox.BEFORE_FIRST_STEP}
    shape, sigma = (3, 3, 1, 2), math.sqrt(2 / 6)
    u = philox.uniform(9, 18, **key).astype(np.float64)
    z = philox.normal(9, 18, **key)
    w = KaimingUniform().draw(shape, seed=9, index=7)
    np.testing.assert_allclose(w.ravel(), math.sqrt(3) * sigma * (2 * u - 1), rtol=1e-7)
    w = KaimingNormal().draw(shape, seed=9, index=7)
    np.testing.assert_allclose(w.ravel(), sigma * z, rtol=1e-7)
    w = Normal(0.5, 2.0).draw(shape, seed=9, index=7)
    np.testing.assert_allclose(w.ravel(), 2 + 0.5 * z, rtol=1e-7)


def test_truncated_normal_redraws_only_what_lies_outside() -> None:
    w = TruncatedNormal().draw((100, 64), seed=3, index=2).ravel() * 8.0
    z = philox.normal(3, 6400, operation=2, step=philox.BEFORE_FIRST_STEP)
    again = philox.normal(3, 6400, sample=1, operation=2, step=philox.BEFORE_FIRST_STEP)
    inside = np.abs(z) <= 2
    np.testing.assert_array_equal(w[inside], z[inside].astype(np.float32))
    second = ~inside & (np.abs(again) <= 2)
    np.testing.assert_array_equal(w[second], again[second].astype(np.float32))
    assert 200 < second.sum() < 400
    assert np.abs(w).max() <= 2


@pytest.mark.parametrize(
    ("rule", "digest"),
    [
        (KaimingUniform(), "1305fc6ac9afaaab"),
        (KaimingNormal(), "ab8d00d2c715e5a2"),
        (XavierUniform(), "a69d270ede715cf3"),
        (XavierNormal(), "23aa158fb3f3ab86"),
        (TruncatedNormal(), "cae62abfaab6c73c"),
        (Normal(), "36d8be7d87e0911c"),
    ],
    ids=lambda x: repr(x) if not isinstance(x, str) else "",
)
def test_the_bits_never_change(rule: Initializer, digest: str) -> None:
    w = rule.draw((64, 3, 3, 33), seed=123, index=5)
    assert hashlib.sha256(w.tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("rule", RANDOM, ids=repr)
def test_seed_and_index_choose_the_stream(rule: Initializer) -> None:
    draws = {rule.draw((8, 8), seed=s, index=i).tobytes() for s in (0, 1) for i in (0, 1, 2)}
    assert len(draws) == 6
    assert rule.draw((8, 8), seed=1, index=1).tobytes() in draws


def test_constants() -> None:
    assert Zeros().draw((2, 3), seed=0, index=0).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert ConstantInit(0.25).draw((1, 2), seed=0, index=0).tolist() == [[0.25, 0.25]]


NET = [
    ("conv1.weight", (4, 3, 3, 3), WeightGroup.FIRST_CONV),
    ("bn1.weight", (4,), WeightGroup.BN_WEIGHT),
    ("bn1.bias", (4,), WeightGroup.BN_BIAS),
    ("conv2.weight", (4, 3, 3, 4), WeightGroup.DEEP_CONV),
    ("bn2.weight", (4,), WeightGroup.BN_WEIGHT),
    ("bn2.bias", (4,), WeightGroup.BN_BIAS),
    ("fc1.weight", (10, 4), WeightGroup.FC_WEIGHT),
    ("fc1.bias", (10,), WeightGroup.FC_BIAS),
]


def test_a_networks_weights() -> None:
    weights = initial_weights(NET, KaimingUniform(), 5)
    assert {n: w.shape for n, w in weights.items()} == {n: s for n, s, _ in NET}
    assert list(weights) == [n for n, _, _ in NET]
    assert all(w.dtype == np.float32 for w in weights.values())
    for name in ("bn1.bias", "bn2.bias", "fc1.bias"):
        assert not weights[name].any()
    for name in ("bn1.weight", "bn2.weight"):
        assert (weights[name] == 1).all()
    for index, name in ((0, "conv1.weight"), (3, "conv2.weight"), (6, "fc1.weight")):
        drawn = KaimingUniform().draw(weights[name].shape, seed=5, index=index)
        assert weights[name].tobytes() == drawn.tobytes()


def test_zero_gamma_starts_the_named_scales_at_zero() -> None:
    plain = initial_weights(NET, KaimingNormal(), 5)
    zeroed = initial_weights(NET, KaimingNormal(), 5, zero_gamma={"bn2.weight"})
    assert not zeroed.pop("bn2.weight").any()
    assert all(zeroed[n].tobytes() == plain[n].tobytes() for n in zeroed)


def test_constant_initialisers_leave_bn_scales_at_one() -> None:
    weights = initial_weights(NET, Zeros(), 0)
    assert (weights["bn1.weight"] == 1).all()
    assert not weights["conv1.weight"].any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: KaimingUniform("both"), 'KaimingUniform fan is \'both\', expected "in", "out"'),
        (lambda: KaimingNormal(gain=0), "KaimingNormal gain is 0"),
        (lambda: XavierUniform(-1), "XavierUniform gain is -1"),
        (lambda: XavierNormal(math.nan), "XavierNormal gain is nan"),
        (lambda: TruncatedNormal(0), "TruncatedNormal scale is 0"),
        (lambda: TruncatedNormal(fan="x"), "TruncatedNormal fan is 'x'"),
        (lambda: Normal(-1), "Normal std is -1"),
        (lambda: ConstantInit(math.inf), "ConstantInit value is inf"),
        (lambda: init.fans((3,)), r"weight shape is \(3,\), expected KRSC filters or"),
        (lambda: init.fans((3, 0)), r"weight shape is \(3, 0\)"),
        (
            lambda: initial_weights(NET, Zeros(), 0, zero_gamma={"bn9.weight"}),
            r"zero_gamma is \['bn9.weight'\], expected names of BN scales: \['bn1.weight'",
        ),
        (
            lambda: initial_weights(NET, Zeros(), 0, zero_gamma={"bn1.bias"}),
            r"zero_gamma is \['bn1.bias'\]",
        ),
        (
            lambda: initial_weights([NET[0], NET[0]], Zeros(), 0),
            "weight name is 'conv1.weight', expected unique",
        ),
    ],
)
def test_errors_name_the_value(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
