"""Schedules are pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.algo.scheduler import (
    WSD,
    Constant,
    CosineAnnealing,
    CosineAnnealingWithWarmRestarts,
    Exponential,
    MultiStep,
    Polynomial,
    Scheduler,
    Step,
)

ALL: list[Scheduler] = [
    Constant(0.5),
    Step(0.5, 2, 0.3),
    MultiStep(0.5, (2, 3, 6), 0.3),
    Exponential(0.5, 0.9),
    Polynomial(0.5),
    CosineAnnealing(0.5),
    CosineAnnealingWithWarmRestarts(0.5, 2, 2),
    WSD(0.5, 0.6, 0.01),
]
EACH = pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)


def rates(schedule: Scheduler, steps_per_epoch: int, epochs: int) -> list[float]:
    return [
        schedule.lr(s, steps_per_epoch=steps_per_epoch, epochs=epochs)
        for s in range(steps_per_epoch * epochs)
    ]


def close(values: list[float], expected: list[float], atol: float = 1e-12) -> None:
    np.testing.assert_allclose(values, expected, rtol=0, atol=atol)


# -- printed values ----------------------------------------------------------------------------


def test_cosine_by_epoch_and_by_batch() -> None:
    close(
        rates(CosineAnnealing(1, eta_min=0, by="epoch"), 1, 5),
        [1, 0.8536, 0.5, 0.1464, 0],
        atol=5e-5,
    )
    close(
        rates(CosineAnnealing(1, eta_min=0, by="batch"), 1, 5),
        [1, 0.9045, 0.6545, 0.3455, 0.0955],
        atol=5e-5,
    )


def test_warm_restarts() -> None:
    close(
        rates(CosineAnnealingWithWarmRestarts(0.5, 1, 2), 1, 8),
        [0.5, 0.5, 0.25, 0.5, 0.426777, 0.25, 0.073223, 0.5],
        atol=5e-7,
    )


def test_wsd() -> None:
    close(rates(WSD(1), 1, 10), [1] * 9 + [0.5])


def test_polynomial() -> None:
    close(rates(Polynomial(1, end_lr=0), 1, 4), [1, 0.64, 0.36, 0.16])


def test_defaults() -> None:
    assert Polynomial(1).power == 2 and Polynomial(1).end_lr == 1e-4
    assert CosineAnnealing(1).eta_min == 1e-6
    assert CosineAnnealingWithWarmRestarts(1, 1).eta_min == 0
    assert (WSD(1).decay_start, WSD(1).end_lr) == (0.8, 0)
    assert Constant(1).warmup == 0 and Constant(1).warmup_start_factor == 0


# -- PyTorch where the definitions agree (one step an epoch) ------------------------------------

WARM: dict[str, Any] = {"warmup": 4, "warmup_start_factor": 0.25}
GOLDEN: dict[str, Scheduler] = {
    "step": Step(0.4, 3, 0.5),
    "multi_step": MultiStep(0.4, (2, 5, 6), 0.3),
    "exponential": Exponential(0.4, 0.9),
    "polynomial": Polynomial(0.4, 1.5, 0.0),
    "cosine_batch": CosineAnnealing(0.4, 0.01),
    "cosine_epoch": CosineAnnealing(0.4, 0.01, by="epoch"),
    "warm_restarts_1": CosineAnnealingWithWarmRestarts(0.4, 2, 1, 0.01),
    "warm_restarts_2": CosineAnnealingWithWarmRestarts(0.4, 2, 2, 0.01),
    "warm_restarts_3": CosineAnnealingWithWarmRestarts(0.4, 2, 3, 0.01),
    "cosine_after_warmup": CosineAnnealing(0.4, 0.01, **WARM),
    "step_after_warmup": Step(0.4, 3, 0.5, **WARM),
    "wsd": WSD(0.4, 0.75, 0.04),
}


def test_every_golden_schedule_has_a_test(golden: dict[str, Any]) -> None:
    assert golden["schedules"].keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_schedules(golden: dict[str, Any], name: str) -> None:
    expected = golden["schedules"][name]
    np.testing.assert_allclose(rates(GOLDEN[name], 1, len(expected)), expected, rtol=1e-12)


# -- the definitions, written again as plain expressions ----------------------------------------


@pytest.mark.parametrize("spe", [1, 3, 7])
@pytest.mark.parametrize("warmup", [0, 2])
def test_definitions_by_batch(spe: int, warmup: int) -> None:
    epochs, base = 9, 0.5
    warm, total = warmup * spe, 9 * spe
    span = total - warm
    formulas: dict[type, Any] = {
        Constant: lambda s, d: base,
        Step: lambda s, d: base * 0.3 ** (d // (2 * spe)),
        MultiStep: lambda s, d: base * 0.3 ** sum(m * spe <= s for m in (2, 3, 6)),
        Exponential: lambda s, d: base * 0.9 ** (d // spe),
        Polynomial: lambda s, d: 1e-4 + (base - 1e-4) * (1 - d / (span + 1)) ** 2,
        CosineAnnealing: lambda s, d: 1e-6 + (base - 1e-6) * (1 + math.cos(math.pi * d / span)) / 2,
        WSD: lambda s, d: (
            base if d <= 0.6 * span else base - (base - 0.01) * (d / span - 0.6) / 0.4
        ),
    }
    for schedule in ALL:
        if type(schedule) not in formulas:
            continue
        formula = formulas[type(schedule)]
        expected = [formula(s, s - warm) if s > warm else base * s / warm if warm else base
                    for s in range(total)]  # fmt: skip
        close(rates(replace(schedule, warmup=warmup), spe, epochs), expected)


@EACH
@pytest.mark.parametrize("spe", [1, 3, 7])
@pytest.mark.parametrize("warmup", [0, 2])
def test_by_epoch_holds_the_value_of_the_epochs_first_step(
    schedule: Scheduler, spe: int, warmup: int
) -> None:
    by_epoch = replace(schedule, warmup=warmup, by="epoch")
    values = np.array(rates(by_epoch, spe, 9)).reshape(9, spe)
    assert (values == values[:, :1]).all()
    if not isinstance(schedule, CosineAnnealing):  # the cosine ends an epoch earlier
        by_batch = np.array(rates(replace(schedule, warmup=warmup), spe, 9)).reshape(9, spe)
        assert values[:, 0].tolist() == by_batch[:, 0].tolist()


@pytest.mark.parametrize("spe", [1, 5])
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_cosine_by_epoch_ends_at_eta_min(spe: int, warmup: int) -> None:
    values = rates(CosineAnnealing(0.5, 0.01, warmup=warmup, by="epoch"), spe, 8)
    assert values[-spe:] == [0.01] * spe
    assert values[-spe - 1] > 0.01


@pytest.mark.parametrize(("warmup", "epochs"), [(0, 1), (3, 4)])
def test_cosine_by_epoch_with_nothing_to_anneal_stays_at_base(warmup: int, epochs: int) -> None:
    assert rates(CosineAnnealing(0.5, warmup=warmup, by="epoch"), 4, epochs)[-4:] == [0.5] * 4


def test_multi_step_counts_milestones_from_the_start_of_training() -> None:
    values = rates(MultiStep(1.0, (2, 5), 0.5, warmup=3), 1, 7)
    close(values, [0, 1 / 3, 2 / 3, 1, 0.5, 0.25, 0.25])


@EACH
def test_warm_up_is_linear_and_reaches_base(schedule: Scheduler) -> None:
    warm = replace(schedule, warmup=2, warmup_start_lr=0.1)
    close(rates(warm, 4, 9)[:9], [0.1 + 0.4 * s / 8 for s in range(9)])
    assert rates(warm, 4, 9)[8] == 0.5
    by_factor = replace(schedule, warmup=2, warmup_start_factor=0.2)
    close(rates(by_factor, 4, 9)[:9], [0.1 + 0.4 * s / 8 for s in range(9)])


@EACH
def test_without_warm_up_the_first_rate_is_base(schedule: Scheduler) -> None:
    assert rates(schedule, 3, 9)[0] == 0.5


def test_warm_up_may_be_fractional() -> None:
    close(rates(Constant(1.0, warmup=0.5), 5, 1), [0, 0.4, 0.8, 1, 1])


# -- properties ---------------------------------------------------------------------------------


@EACH
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(3, 30), st.sampled_from(["batch", "epoch"]), st.data())
def test_the_table_is_lr_and_resuming_is_exact(
    schedule: Scheduler, spe: int, epochs: int, by: str, data: st.DataObject
) -> None:
    schedule = replace(schedule, by=by, warmup=data.draw(st.integers(0, 3)))
    table = schedule.table(spe, epochs)
    assert table.shape == (spe * epochs,)
    assert table.dtype == np.float32
    step = data.draw(st.integers(0, spe * epochs - 1))
    fresh = replace(schedule)  # nothing is remembered from other steps
    assert table[step] == np.float32(fresh.lr(step, steps_per_epoch=spe, epochs=epochs))


@EACH
@pytest.mark.parametrize("by", ["batch", "epoch"])
def test_past_the_end_the_last_rate_holds(schedule: Scheduler, by: str) -> None:
    schedule = replace(schedule, by=by)
    last = rates(schedule, 3, 9)[-1]
    for step in (27, 28, 30, 1000, 10**9):
        assert schedule.lr(step, steps_per_epoch=3, epochs=9) == last


@EACH
@pytest.mark.parametrize("by", ["batch", "epoch"])
@pytest.mark.parametrize(("spe", "epochs", "warmup"), [(1, 1, 0), (1, 1, 1), (5, 1, 1), (3, 4, 4)])
def test_the_shortest_runs_are_defined(
    schedule: Scheduler, by: str, spe: int, epochs: int, warmup: int
) -> None:
    table = replace(schedule, by=by, warmup=warmup).table(spe, epochs)
    assert np.isfinite(table).all() and (table >= 0).all() and (table <= 0.5).all()


@EACH
def test_rates_are_python_floats(schedule: Scheduler) -> None:
    assert all(type(x) is float for x in rates(replace(schedule, base_lr=1), 2, 9))


def test_schedules_are_values() -> None:
    assert MultiStep(0.1, [2, 3]) == MultiStep(0.1, (2, 3))
    assert hash(MultiStep(0.1, [2, 3])) == hash(MultiStep(0.1, (2, 3)))


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constant(-0.1), "Constant base_lr is -0.1"),
        (lambda: Constant(float("nan")), "Constant base_lr is nan"),
        (lambda: Constant(0.1, warmup=-1), "Constant warmup is -1"),
        (lambda: Constant(0.1, warmup_start_lr=-1), "Constant warmup_start_lr is -1"),
        (lambda: Constant(0.1, warmup_start_factor=-1), "Constant warmup_start_factor is -1"),
        (
            lambda: Constant(0.1, warmup_start_lr=0.1, warmup_start_factor=0.1),
            "warmup_start_factor is 0.1, expected 0 together with warmup_start_lr=0.1",
        ),
        (lambda: Constant(0.1, by="step"), "Constant by is 'step', expected \"batch\" or"),
        (lambda: Step(0.1, 0), "Step size is 0"),
        (lambda: Step(0.1, 2, -0.1), "Step gamma is -0.1"),
        (lambda: MultiStep(0.1, (3, 2)), r"milestones is \(3, 2\), expected strictly increasing"),
        (lambda: MultiStep(0.1, (2, 2)), r"milestones is \(2, 2\)"),
        (lambda: MultiStep(0.1, (0, 2)), "MultiStep milestone is 0"),
        (lambda: Exponential(0.1, -1), "Exponential gamma is -1"),
        (lambda: Polynomial(0.1, 0), "Polynomial power is 0"),
        (lambda: Polynomial(0.1, end_lr=-1), "Polynomial end_lr is -1"),
        (lambda: CosineAnnealing(0.1, -1), "CosineAnnealing eta_min is -1"),
        (lambda: CosineAnnealingWithWarmRestarts(0.1, 0), "WarmRestarts t_0 is 0"),
        (lambda: CosineAnnealingWithWarmRestarts(0.1, 1, 0), "WarmRestarts t_mult is 0"),
        (lambda: WSD(0.1, 1.1), "WSD decay_start is 1.1"),
        (lambda: WSD(0.1, end_lr=-1), "WSD end_lr is -1"),
        (
            lambda: CosineAnnealing(0.1, warmup=6).table(10, 5),
            "CosineAnnealing warmup is 6, expected at most the 5 epochs of the run",
        ),
        (lambda: Constant(0.1).lr(-1, steps_per_epoch=1, epochs=1), "step is -1"),
        (lambda: Constant(0.1).lr(0, steps_per_epoch=0, epochs=1), "steps_per_epoch is 0"),
        (lambda: Constant(0.1).table(1, 0), "epochs is 0"),
    ],
)
def test_errors_name_the_value(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("milestones", ["12", 3, (1.5, 2)])
def test_milestones_are_whole_epochs(milestones: Any) -> None:
    with pytest.raises(TypeError, match="milestone"):
        MultiStep(0.1, milestones)
