"""Switch EMA: the averaged weights become the main weights."""

from __future__ import annotations

from typing import Any

from renaissance.core.types import Region, WeightGroup
from renaissance.lowering.state import ArrayState, owned


def adopt_average(state: ArrayState) -> ArrayState:
    """The state with the moving average of the weights as its main weights.

    Moments, statistics, counters and the average itself stay. The fp16 compute copies, where there
    are any, are refreshed.

    Args:
        state: Of a program that keeps a moving average; remains valid.

    Source: Li et al., "Switch EMA: a free lunch for better flatness and sharpness", 2024.
    """
    updates: dict[Region, dict[str, Any]] = {}
    for group in WeightGroup:
        average = state.region(group.region("E"))
        updates[group.region("W")] = {name: owned(value) for name, value in average.items()}
        if group.has_compute_copy:
            copies = state.region(group.region("A"))
            updates[group.region("A")] = {
                name: owned(average[name], copy.dtype) for name, copy in copies.items()
            }
    return state.replace(updates)
