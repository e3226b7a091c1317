"""Metrics: what a step reports, left on the device until somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from renaissance.lowering.recipe import METRICS

Means = dict[str, Any]
"""Means over rows by name, and ``count``, the rows."""


class Metrics(Mapping[str, Any]):
    """The metrics of one step, or of several with a leading axis.

    All of them lie in one small device array, so that a step costs one output and a look one
    transfer: reading any value waits for the step and fetches the lot. Keep the object itself to
    stay asynchronous.

    Keys: ``loss`` (mean over rows), ``top1`` and ``top5`` (fractions), ``count`` (rows), ``lr``,
    ``skipped`` (1 where a gradient was not finite and the step changed nothing).
    """

    __slots__ = ("_fetched", "array", "one_step", "sums")

    def __init__(self, array: jax.Array, *, sums: bool = False, one_step: bool = False):
        """
        Args:
            array: ``(6,)`` or ``(S, 6)`` in the order of the keys; further columns do not count.
            sums: Whether loss and accuracies are sums over rows, still to be divided by ``count``.
            one_step: Whether a leading axis of one step is to be dropped.
        """
        self.array = array
        self.sums, self.one_step = sums, one_step
        self._fetched: np.ndarray | None = None

    def block_until_ready(self) -> Metrics:
        """Wait for the step."""
        self.array.block_until_ready()
        return self

    def __getitem__(self, key: str) -> Any:
        if self._fetched is None:
            self._fetched = self._fetch()
        try:
            return self._fetched[..., METRICS.index(key)][()]
        except ValueError:
            raise KeyError(f"metric is {key!r}, expected one of {', '.join(METRICS)}") from None

    def _fetch(self) -> np.ndarray:
        values = np.array(self.array[0] if self.one_step else self.array)
        if self.sums:
            values[..., :3] /= values[..., METRICS.index("count"), None]
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(METRICS)

    def __len__(self) -> int:
        return len(METRICS)

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{name}={self[name]}' for name in METRICS)})"


def mean_of(sums: Mapping[str, float]) -> Means:
    """Means over rows from sums over rows."""
    count = sums["count"]
    means = {n: sums[n] / count if count else float("nan") for n in ("loss", "top1", "top5")}
    return {**means, "count": int(count)}
