"""An optimizer over named tensors: independent trajectories, groups, frozen tensors, skipped
steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW, Optimizer
from renaissance.core.types import WeightGroup
from renaissance.lowering import optimizer as lowering
from renaissance.lowering import range as ranges
from renaissance.lowering.optimizer import Trained

SHAPES = {
    "conv1.weight": (4, 3, 3, 1),
    "bn1.weight": (4,),
    "bn1.bias": (4,),
    "conv2.weight": (3, 1, 1, 4),
    "fc1.weight": (5, 3),
    "fc1.bias": (5,),
}
GROUPS = {
    "conv1.weight": WeightGroup.FIRST_CONV,
    "bn1.weight": WeightGroup.BN_WEIGHT,
    "bn1.bias": WeightGroup.BN_BIAS,
    "conv2.weight": WeightGroup.DEEP_CONV,
    "fc1.weight": WeightGroup.FC_WEIGHT,
    "fc1.bias": WeightGroup.FC_BIAS,
}
OPTIMIZERS: list[Optimizer] = [
    SGD(weight_decay=0.05),
    SGD(0.9, nesterov=True, weight_decay=0.05),
    LARS(weight_decay=0.05, trust_coefficient=0.02),
    LARS(nesterov=True, weight_decay=0.05, trust_coefficient=0.02),
    Adam(weight_decay=0.05),
    AdamW(weight_decay=0.05),
]
EACH = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)


def draw(seed: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


def rate(step: int) -> float:
    return 0.1 * (step + 1) if step < 5 else 0.5 * 0.9 ** (step - 5)


def step_function(optimizer: Optimizer) -> Callable[..., Trained]:
    """One jitted step; ``t`` and ``lr`` are traced."""
    return jax.jit(
        lambda trained, gradients, lr, t: lowering.update(
            optimizer, trained, gradients, groups=GROUPS, lr=lr, t=t
        )
    )


def to_bytes(trained: Trained) -> list[tuple[str, bytes]]:
    return [(n, np.asarray(x).tobytes()) for part in trained for n, x in sorted(part.items())]


class Plain:
    """The same rules on lists of Python floats, an element at a time."""

    def __init__(self, rule: Any, values: np.ndarray, decays: bool) -> None:
        self.rule, self.decays = rule, decays
        self.w = [float(x) for x in values.ravel()]
        self.m, self.v = [0.0] * len(self.w), [0.0] * len(self.w)

    def step(self, gradient: np.ndarray, lr: float, t: int) -> None:
        g = [float(x) for x in gradient.ravel()]
        wd = self.rule.weight_decay if self.decays else 0.0
        eta = 1.0
        if isinstance(self.rule, LARS) and self.decays:
            w_norm, g_norm = math.hypot(*self.w), math.hypot(*g)
            eta = self.rule.trust_coefficient * w_norm / (g_norm + wd * w_norm)
        for i, (w, slope) in enumerate(zip(self.w, g, strict=True)):
            self.w[i] = self.element(i, w, slope, wd, lr, t, eta)

    def element(
        self, i: int, w: float, g: float, wd: float, lr: float, t: int, eta: float
    ) -> float:
        rule = self.rule
        if isinstance(rule, (Adam, AdamW)):
            g += 0.0 if isinstance(rule, AdamW) else wd * w
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            m_hat, v_hat = self.m[i] / (1 - 0.9**t), self.v[i] / (1 - 0.999**t)
            w_next = w - lr * m_hat / (math.sqrt(v_hat) + 1e-8)
            return w_next - lr * wd * w if isinstance(rule, AdamW) else w_next
        g += wd * w
        if isinstance(rule, LARS) and self.decays:
            self.m[i] = 0.9 * self.m[i] + lr * eta * g
            return w - (lr * eta * g + 0.9 * self.m[i] if rule.nesterov else self.m[i])
        self.m[i] = rule.momentum * self.m[i] + g
        ahead = rule.nesterov and not isinstance(rule, LARS)
        return w - lr * (g + rule.momentum * self.m[i] if ahead else self.m[i])


@EACH
def test_twenty_steps_in_float64_follow_an_independent_implementation(
    optimizer: Optimizer,
) -> None:
    start = draw(0, np.float64)
    plain = {n: Plain(optimizer, w, GROUPS[n].decays) for n, w in start.items()}
    with jax.enable_x64(True):
        step = step_function(optimizer)
        trained = lowering.start(optimizer, {n: jnp.asarray(w) for n, w in start.items()})
        for i in range(20):
            gradients = draw(i + 1, np.float64)
            trained = step(trained, gradients, jnp.float64(rate(i)), jnp.int32(i + 1))
            for name, reference in plain.items():
                reference.step(gradients[name], rate(i), i + 1)
        for name, reference in plain.items():
            ours = np.asarray(trained.weights[name])
            assert ours.dtype == np.float64
            error = np.linalg.norm(ours.ravel() - reference.w) / np.linalg.norm(reference.w)
            assert error <= 1e-12, (name, error)


@EACH
def test_skipped_steps_leave_every_bit_and_the_rest_goes_on_as_if_they_never_were(
    optimizer: Optimizer,
) -> None:
    @jax.jit
    def guarded(trained: Trained, gradients: Any, applied: jax.Array) -> Any:
        finite = ranges.all_finite(gradients)
        new = lowering.update(optimizer, trained, gradients, groups=GROUPS, lr=0.1, t=applied + 1)
        return lowering.update_if(finite, new, trained), applied + finite

    def run(batches: list[dict[str, Any]]) -> list[list[tuple[str, bytes]]]:
        trained, applied = lowering.start(optimizer, draw(0)), jnp.int32(0)
        history = []
        for gradients in batches:
            trained, applied = guarded(trained, gradients, applied)
            history.append(to_bytes(trained))
        return history

    good = [draw(i) for i in range(1, 5)]
    bad = []
    for name, value in (("fc1.weight", np.nan), ("bn1.bias", np.inf), ("conv1.weight", -np.inf)):
        gradients = draw(9)
        gradients[name].flat[-1] = value
        bad.append(gradients)
    clean = run(good)
    broken = run([good[0], bad[0], good[1], bad[1], bad[2], good[2], good[3]])
    assert broken == [clean[i] for i in (0, 0, 1, 1, 1, 2, 3)]
    assert clean[0] != clean[1]


@EACH
def test_a_tensor_without_a_gradient_is_frozen(optimizer: Optimizer) -> None:
    start = lowering.start(optimizer, draw(0))
    gradients = draw(1)
    del gradients["conv1.weight"]
    new = step_function(optimizer)(start, gradients, 0.1, 1)
    for before, after in zip(start, new, strict=True):
        assert before.keys() == after.keys()
        for name in before:
            same = np.array_equal(before[name], after[name])
            assert same == (name == "conv1.weight"), name


@EACH
def test_a_power_of_two_loss_scale_gives_the_same_bits(optimizer: Optimizer) -> None:
    @jax.jit
    def step(trained: Trained, scaled: Any, scale: jax.Array) -> Trained:
        gradients = ranges.unscale(scaled, scale)
        return lowering.update(optimizer, trained, gradients, groups=GROUPS, lr=0.1, t=1)

    start, gradients = lowering.start(optimizer, draw(0)), draw(1)
    plain = to_bytes(step(start, gradients, jnp.float32(1)))
    for scale in (2.0, 2.0**10, 2.0**24):
        scaled = {n: g * np.float32(scale) for n, g in gradients.items()}
        assert to_bytes(step(start, scaled, jnp.float32(scale))) == plain


@EACH
def test_moments_exist_where_the_slots_say(optimizer: Optimizer) -> None:
    start = lowering.start(optimizer, draw(0))
    slots = optimizer.slots
    assert (bool(start.first), bool(start.second)) == (slots.first_moment, slots.second_moment)
    for moments in start[1:]:
        assert all(x.shape == SHAPES[n] and not x.any() for n, x in moments.items())


def test_norms_are_per_tensor() -> None:
    """LARS on two tensors at once is LARS on each alone."""
    rule = LARS(weight_decay=0.05)
    start, gradients = lowering.start(rule, draw(0)), draw(1)
    step = step_function(rule)
    together = step(start, gradients, 0.1, 1)
    for name in ("conv1.weight", "fc1.weight"):
        alone = step(start, {name: gradients[name]}, 0.1, 1)
        np.testing.assert_array_equal(together.weights[name], alone.weights[name])


def test_repeats_are_bit_identical() -> None:
    runs = []
    for _ in range(2):
        step, trained = step_function(AdamW()), lowering.start(AdamW(), draw(0))
        for t in range(1, 4):
            trained = step(trained, draw(t), 0.1, t)
        runs.append(to_bytes(trained))
    assert runs[0] == runs[1]


def test_errors_name_the_tensor() -> None:
    start = lowering.start(SGD(), draw(0))
    one = jnp.ones((4,), jnp.float32)
    for gradients, words in [
        ({"conv9.weight": one}, "gradient is 'conv9.weight', expected of one of the weights"),
        ({"fc1.bias": one}, r"gradient of fc1.bias is \(\(4,\), 'float32'\), expected .*\(5,\)"),
        ({"bn1.bias": one.astype(jnp.float16)}, "gradient of bn1.bias is .*'float16'"),
    ]:
        with pytest.raises(ValueError, match=words):
            lowering.update(SGD(), start, gradients, groups=GROUPS, lr=0.1, t=1)
