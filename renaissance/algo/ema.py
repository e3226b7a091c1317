"""Exponential moving average of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from renaissance.core.errors import check_real


@dataclass(frozen=True, slots=True)
class EMA:
    """``e <- d e + (1 - d) w`` after each applied step; ``e`` starts as a copy of ``w``.

    ``d`` is rounded to the dtype of the weights before ``1 - d`` is taken: the two factors then add
    up to exactly one, so that an average of equal weights stays where it is, for d as close to 1 as
    the dtype allows.

    Args:
        decay: ``d`` in [0, 1).
    """

    decay: float

    def __post_init__(self) -> None:
        check_real("EMA decay", self.decay, 0, 1, open_high=True)

    def update(self, e: Any, w: Any, *, xp: Any = np) -> Any:
        """The average after a step.

        Args:
            e: The average before it, any shape.
            w: The weights after it, same shape and dtype.
            xp: Array namespace, ``numpy`` or ``jax.numpy``.
        """
        decay = xp.asarray(self.decay, dtype=e.dtype)
        return decay * e + (1 - decay) * w
