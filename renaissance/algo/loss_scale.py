"""Dynamic loss scaling: the state machine that keeps fp16 gradients inside their range."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import Any

import numpy as np

from renaissance.core.errors import TrainingDiverged, check_int, check_real, fail


@dataclass(frozen=True, slots=True)
class LossScale:
    """Doubles after a run of clean steps, halves at an overflow, gives up after too many in a row.

    All scales are powers of two: scaling and unscaling then round nothing, and an update does not
    depend on the scale as long as nothing leaves fp16's normal range.

    Args:
        initial: First scale.
        growth_interval: Clean steps before the scale doubles.
        maximum: It doubles no further than this.
        minimum: It halves no further than this.
        max_overflows: Overflows in a row at which training has diverged.

    Source: Micikevicius et al., "Mixed precision training", ICLR 2018.
    """

    initial: float = 2.0**15
    growth_interval: int = 2000
    maximum: float = 2.0**24
    minimum: float = 1.0
    max_overflows: int = 50

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "minimum"):
            value = check_real(f"LossScale {name}", getattr(self, name), 0, open_low=True)
            if frexp(value)[0] != 0.5:
                fail(ValueError, f"LossScale {name}", value, "a power of two")
        if not self.minimum <= self.initial <= self.maximum:
            expected = f"between minimum {self.minimum:g} and maximum {self.maximum:g}"
            fail(ValueError, "LossScale initial", self.initial, expected)
        check_int("LossScale growth_interval", self.growth_interval, 1)
        check_int("LossScale max_overflows", self.max_overflows, 1)

    def advance(
        self, scale: Any, clean_steps: Any, finite: Any, *, xp: Any = np
    ) -> tuple[Any, Any]:
        """The scale and the counter after a step.

        Args:
            scale: The scale the step ran with, a float32 scalar.
            clean_steps: Steps without overflow since the scale last changed, an int32 scalar.
            finite: Whether all gradients of the step were finite, a boolean scalar.
            xp: Array namespace, ``numpy`` or ``jax.numpy``.

        Returns:
            The new scale and counter. A step that overflowed must change nothing else.
        """
        scale, clean = xp.asarray(scale), xp.asarray(clean_steps) + 1
        grow = clean >= self.growth_interval
        doubled = xp.minimum(scale * 2, self.maximum)
        halved = xp.maximum(scale * 0.5, self.minimum)
        new_scale = xp.where(finite, xp.where(grow, doubled, scale), halved)
        new_clean = xp.where(xp.logical_and(finite, xp.logical_not(grow)), clean, 0)
        return new_scale.astype(scale.dtype), new_clean.astype(clean.dtype)

    def check(self, overflow_run: int, scale: float) -> None:
        """Stop a run that cannot recover. For the host, wherever it reads the counters.

        Args:
            overflow_run: Overflowed steps in a row.
            scale: The scale they have led to, for the message.

        Raises:
            TrainingDiverged: ``max_overflows`` or more.
        """
        if int(overflow_run) >= self.max_overflows:
            raise TrainingDiverged(
                f"{int(overflow_run)} steps in a row had infinite or NaN gradients (limit "
                f"{self.max_overflows}), the loss scale is down to {float(scale):g}: lower the "
                "learning rate, lengthen the warm-up, or clip the gradients"
            )
