"""The loss scale's state machine."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.loss_scale import LossScale
from renaissance.core.errors import TrainingDiverged


def walk(rule: LossScale, finite: list[bool], scale: float | None = None) -> list[float]:
    """The scale after each step."""
    state: Any = (np.float32(rule.initial if scale is None else scale), np.int32(0))
    scales = []
    for flag in finite:
        state = rule.advance(*state, flag)
        scales.append(float(state[0]))
    return scales


def test_defaults() -> None:
    rule = LossScale()
    assert (rule.initial, rule.growth_interval, rule.maximum) == (2.0**15, 2000, 2.0**24)
    assert (rule.minimum, rule.max_overflows) == (1.0, 50)


def test_doubles_after_2000_clean_steps() -> None:
    scales = walk(LossScale(), [True] * 4000)
    assert scales[1998:2000] == [2.0**15, 2.0**16]
    assert scales[3998:4000] == [2.0**16, 2.0**17]


def test_halves_at_every_overflow_and_counts_anew() -> None:
    rule = LossScale(initial=8.0, growth_interval=3)
    assert walk(rule, [True, True, False, True, True, True]) == [8, 8, 4, 4, 4, 8]
    assert walk(rule, [False] * 5) == [4, 2, 1, 1, 1]


def test_stops_at_the_maximum() -> None:
    rule = LossScale(growth_interval=1)
    assert walk(rule, [True] * 10)[-2:] == [2.0**24, 2.0**24]


def test_a_fixed_scale_is_possible() -> None:
    rule = LossScale(initial=1.0, maximum=1.0, growth_interval=1)
    assert walk(rule, [True, False, True]) == [1, 1, 1]


def test_jit_gives_the_same_states_and_dtypes() -> None:
    rule = LossScale(initial=16.0, growth_interval=2)
    step = jax.jit(lambda scale, clean, finite: rule.advance(scale, clean, finite, xp=jnp))
    ours: Any = (np.float32(16), np.int32(0))
    jaxs: Any = (jnp.float32(16), jnp.int32(0))
    for finite in [True, True, True, False, True, False, False, True, True]:
        ours, jaxs = rule.advance(*ours, finite), step(*jaxs, jnp.bool_(finite))
        assert [float(x) for x in ours] == [float(x) for x in jaxs]
        assert [x.dtype for x in ours] == [x.dtype for x in jaxs] == [np.float32, np.int32]


def test_fifty_in_a_row_stop_the_run() -> None:
    LossScale().check(49, 1.0)
    with pytest.raises(TrainingDiverged, match="50 steps in a row .* loss scale is down to 1"):
        LossScale().check(50, 1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"initial": 1000.0}, "LossScale initial is 1000.0, expected a power of two"),
        ({"initial": 0.0}, "LossScale initial is 0.0"),
        ({"maximum": 3.0}, "LossScale maximum is 3.0"),
        ({"initial": 2.0**25}, "between minimum 1 and maximum 1.67772e\\+07"),
        ({"minimum": 2.0**16}, "LossScale initial is 32768.0"),
        ({"growth_interval": 0}, "LossScale growth_interval is 0"),
        ({"max_overflows": 0}, "LossScale max_overflows is 0"),
    ],
)
def test_errors_name_the_value(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LossScale(**options)
