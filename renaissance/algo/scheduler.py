"""Learning-rate schedules: pure functions of the step, so resuming anywhere is exact.

Notation: s step counted from 0, spe steps per epoch, W = warmup spe warm-up steps, T = epochs spe
steps in all, d = s - W steps since the warm-up, D = T - W.

Common to all:

* Warm-up, s <= W: ``start + (base - start) s / W``. Without warm-up ``lr(0) = base``.
* ``by="batch"`` changes the rate every step; ``by="epoch"`` only at epoch starts, where it has the
  formula's value at ``s = epoch spe``.
* A step at or past the end of the run keeps the rate of the last step, T - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, floor, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from renaissance.core.errors import check_int, check_real, fail


class Position(NamedTuple):
    """Where a step lies in a run, after the warm-up.

    Attributes:
        d: Steps since the warm-up, > 0.
        duration: ``D``, steps between the warm-up and the end of the run.
        epoch: Current epoch, from the start of training.
        steps_per_epoch: Steps in an epoch.
    """

    d: float
    duration: float
    epoch: int
    steps_per_epoch: int


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What all schedules share.

    Args:
        base_lr: Rate after the warm-up, >= 0.
        warmup: Epochs of linear warm-up, >= 0, may be fractional.
        warmup_start_lr: Rate at step 0 of a warm-up.
        warmup_start_factor: The same as a multiple of ``base_lr``, when ``warmup_start_lr`` is not
            given.
        by: ``"batch"`` or ``"epoch"``.

    Raises:
        ValueError: A value out of range, or both forms of the warm-up's start.
    """

    base_lr: float
    warmup: float = field(default=0, kw_only=True)
    warmup_start_lr: float | None = field(default=None, kw_only=True)
    warmup_start_factor: float = field(default=0.0, kw_only=True)
    by: str = field(default="batch", kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_real(f"{name} base_lr", self.base_lr, 0)
        check_real(f"{name} warmup", self.warmup, 0)
        check_real(f"{name} warmup_start_factor", self.warmup_start_factor, 0)
        if self.warmup_start_lr is not None:
            check_real(f"{name} warmup_start_lr", self.warmup_start_lr, 0)
            if self.warmup_start_factor != 0:
                expected = f"0 together with warmup_start_lr={self.warmup_start_lr:g}"
                fail(ValueError, f"{name} warmup_start_factor", self.warmup_start_factor, expected)
        if self.by not in ("batch", "epoch"):
            fail(ValueError, f"{name} by", self.by, '"batch" or "epoch"')
        self._check(name)

    def lr(self, step: int, *, steps_per_epoch: int, epochs: int) -> float:
        """The learning rate of a step.

        Args:
            step: From 0 at the start of training.
            steps_per_epoch: Steps in an epoch.
            epochs: Epochs of the whole run.

        Returns:
            A float64 rate.

        Raises:
            ValueError: A negative step, an empty run, or a warm-up longer than the run.
        """
        steps_per_epoch, epochs = self.check_run(steps_per_epoch, epochs)
        step = check_int("step", step, 0)
        return self._lr(min(step, steps_per_epoch * epochs - 1), steps_per_epoch, epochs)

    def table(
        self, steps_per_epoch: int, epochs: int, *, dtype: DTypeLike = np.float32
    ) -> NDArray[np.floating]:
        """The rates of all steps of a run, :meth:`lr` rounded to ``dtype``.

        Args:
            steps_per_epoch: Steps in an epoch.
            epochs: Epochs of the whole run.
            dtype: float32 or float64.

        Returns:
            ``[steps_per_epoch * epochs]`` rates, one entry a step in both modes.
        """
        steps_per_epoch, epochs = self.check_run(steps_per_epoch, epochs)
        stride = steps_per_epoch if self.by == "epoch" else 1
        steps = range(0, steps_per_epoch * epochs, stride)
        rates = np.array([self._lr(s, steps_per_epoch, epochs) for s in steps], dtype)
        return np.repeat(rates, stride)

    def check_run(self, steps_per_epoch: int, epochs: int) -> tuple[int, int]:
        """Refuse a run that the schedule does not fit.

        Args:
            steps_per_epoch: Steps in an epoch.
            epochs: Epochs of the whole run.

        Returns:
            The two arguments.

        Raises:
            ValueError: An empty run, or a warm-up longer than the run.
        """
        steps_per_epoch = check_int("steps_per_epoch", steps_per_epoch, 1)
        epochs = check_int("epochs", epochs, 1)
        if self.warmup > epochs:
            expected = f"at most the {epochs} epochs of the run"
            fail(ValueError, f"{type(self).__name__} warmup", self.warmup, expected)
        return steps_per_epoch, epochs

    def _lr(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        epoch = step // steps_per_epoch
        if self.by == "epoch":
            step = epoch * steps_per_epoch
        warmup_steps = self.warmup * steps_per_epoch
        d = step - warmup_steps
        if d == 0:
            return float(self.base_lr)
        if d < 0:
            start = self.warmup_start_lr
            if start is None:
                start = self.base_lr * self.warmup_start_factor
            return start + (self.base_lr - start) * step / warmup_steps
        duration = steps_per_epoch * epochs - warmup_steps
        return float(self._after(Position(d, duration, epoch, steps_per_epoch)))

    def _check(self, name: str) -> None:
        """Check the fields a schedule adds."""

    def _after(self, at: Position) -> float:
        """The rate after the warm-up."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant(Scheduler):
    """``base`` throughout."""

    def _after(self, at: Position) -> float:
        return self.base_lr


@dataclass(frozen=True, slots=True)
class Step(Scheduler):
    """``base gamma^floor(d / (size spe))``: a drop every ``size`` epochs after the warm-up.

    Args:
        size: Epochs between drops, >= 1.
        gamma: Factor of a drop, >= 0.
    """

    size: int
    gamma: float = 0.1

    def _check(self, name: str) -> None:
        check_int(f"{name} size", self.size, 1)
        check_real(f"{name} gamma", self.gamma, 0)

    def _after(self, at: Position) -> float:
        return self.base_lr * self.gamma ** floor(at.d / (self.size * at.steps_per_epoch))


@dataclass(frozen=True, slots=True)
class MultiStep(Scheduler):
    """``base gamma^k``, k the number of milestones at or before the current epoch.

    Args:
        milestones: Epochs counted from the start of training, >= 1, strictly increasing.
        gamma: Factor of a drop, >= 0.
    """

    milestones: Sequence[int]
    gamma: float = 0.1

    def _check(self, name: str) -> None:
        if isinstance(self.milestones, (str, bytes)) or not isinstance(self.milestones, Sequence):
            fail(TypeError, f"{name} milestones", self.milestones, "a sequence of epochs")
        epochs = tuple(check_int(f"{name} milestone", m, 1) for m in self.milestones)
        if any(a >= b for a, b in zip(epochs, epochs[1:], strict=False)):
            fail(ValueError, f"{name} milestones", epochs, "strictly increasing")
        object.__setattr__(self, "milestones", epochs)
        check_real(f"{name} gamma", self.gamma, 0)

    def _after(self, at: Position) -> float:
        return self.base_lr * self.gamma ** sum(m <= at.epoch for m in self.milestones)


@dataclass(frozen=True, slots=True)
class Exponential(Scheduler):
    """``base gamma^floor(d / spe)``: a drop every epoch after the warm-up.

    Args:
        gamma: Factor of an epoch, >= 0.
    """

    gamma: float

    def _check(self, name: str) -> None:
        check_real(f"{name} gamma", self.gamma, 0)

    def _after(self, at: Position) -> float:
        return self.base_lr * self.gamma ** floor(at.d / at.steps_per_epoch)


@dataclass(frozen=True, slots=True)
class Polynomial(Scheduler):
    """``end + (base - end) (1 - min(1, d / (D + 1)))^power``.

    Args:
        power: > 0.
        end_lr: ``end`` >= 0.
    """

    power: float = 2.0
    end_lr: float = 1e-4

    def _check(self, name: str) -> None:
        check_real(f"{name} power", self.power, 0, open_low=True)
        check_real(f"{name} end_lr", self.end_lr, 0)

    def _after(self, at: Position) -> float:
        left = 1.0 - min(1.0, at.d / (at.duration + 1))
        return self.end_lr + (self.base_lr - self.end_lr) * left**self.power


@dataclass(frozen=True, slots=True)
class CosineAnnealing(Scheduler):
    """``eta_min + (base - eta_min) (1 + cos(pi min(1, d / D'))) / 2``.

    ``D' = D`` by batch. By epoch ``D' = D - spe``, so that the last epoch reaches ``eta_min``;
    where that leaves nothing to anneal over (``D' <= 0``: one epoch after the warm-up) the rate
    stays base.

    Args:
        eta_min: Rate at the end, >= 0.

    Source: Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
    """

    eta_min: float = 1e-6

    def _check(self, name: str) -> None:
        check_real(f"{name} eta_min", self.eta_min, 0)

    def _after(self, at: Position) -> float:
        span = at.duration - (at.steps_per_epoch if self.by == "epoch" else 0)
        return self.base_lr if span <= 0 else _half_cosine(self.base_lr, self.eta_min, at.d / span)


@dataclass(frozen=True, slots=True)
class CosineAnnealingWithWarmRestarts(Scheduler):
    """Cosine from base to ``eta_min`` over ``t_0`` epochs, again over ``t_0 t_mult``, and so on.

    Args:
        t_0: Epochs of the first period, >= 1.
        t_mult: Factor from each period to the next, >= 1.
        eta_min: Rate at a period's end, >= 0.

    Source: Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
    """

    t_0: int
    t_mult: int = 1
    eta_min: float = 0.0

    def _check(self, name: str) -> None:
        check_int(f"{name} t_0", self.t_0, 1)
        check_int(f"{name} t_mult", self.t_mult, 1)
        check_real(f"{name} eta_min", self.eta_min, 0)

    def _after(self, at: Position) -> float:
        d, period = at.d, self.t_0 * at.steps_per_epoch
        if self.t_mult == 1:
            d %= period
        while d >= period:
            d, period = d - period, period * self.t_mult
        return _half_cosine(self.base_lr, self.eta_min, d / period)


@dataclass(frozen=True, slots=True)
class WSD(Scheduler):
    """Warm-up, stable, decay: base until ``decay_start D``, then linear to ``end_lr`` at D.

    Args:
        decay_start: Fraction of D in [0, 1] at which the decay begins.
        end_lr: Rate at the end, >= 0.

    Source: Hu et al., "MiniCPM: unveiling the potential of small language models", 2024.
    """

    decay_start: float = 0.8
    end_lr: float = 0.0

    def _check(self, name: str) -> None:
        check_real(f"{name} decay_start", self.decay_start, 0, 1)
        check_real(f"{name} end_lr", self.end_lr, 0)

    def _after(self, at: Position) -> float:
        stable = self.decay_start * at.duration
        if at.d <= stable:
            return self.base_lr
        share = (at.d - stable) / (at.duration - stable)
        return self.base_lr + (self.end_lr - self.base_lr) * share


def _half_cosine(high: float, low: float, share: float) -> float:
    return low + (high - low) * (1.0 + cos(pi * min(1.0, share))) / 2.0
