"""Features lie as tenants in the bytes of master gradients, which are dead while features live.

Where matrix operands have half gradients, their fp32 gradients are made by the casts behind the
backward pass, when no feature is alive any more. Until then their bytes can hold features: those of
the fullest stage, so that the features' own region shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping

from renaissance.core.types import Region, WeightGroup
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.graph.memory_plan.allocator import fullest_time
from renaissance.graph.memory_plan.lifetime import Lifetime

LANDLORDS = RegionRun(Region.G_FC_WEIGHT, Region.G_DEEP_CONV)
"""The master gradients of all matrix operands, one after the other."""
FEATURES = Region.F_FEATURE_FP16
SMALLEST_TENANT = 1 << 20
"""Bytes below which a feature stays among the others: nothing is won by moving it."""


def accommodate(sizes: Mapping[Ref, int], lives: Mapping[Ref, Lifetime]) -> dict[Ref, int]:
    """Which features move, and where: offsets from the begin of :data:`LANDLORDS`.

    The largest that fits goes first. All of them are alive at once, so they lie side by side.

    Args:
        sizes: Bytes by tensor, of all regions.
        lives: Lifetimes of those in reused regions.
    """
    room = sum(nbytes for ref, nbytes in sizes.items() if _is_dead_until_cast(sizes, ref))
    features = {ref: nbytes for ref, nbytes in sizes.items() if ref.region is FEATURES}
    if not room or not features:
        return {}
    time = fullest_time(features, lives)
    alive = [ref for ref in features if lives[ref].begin <= time <= lives[ref].end]
    offsets: dict[Ref, int] = {}
    top = 0
    for ref in sorted(alive, key=lambda ref: -sizes[ref]):
        if SMALLEST_TENANT <= sizes[ref] <= room - top:
            offsets[ref] = top
            top += sizes[ref]
    return offsets


def _is_dead_until_cast(sizes: Mapping[Ref, int], gradient: Ref) -> bool:
    group = _GROUPS.get(gradient.region)
    return group is not None and Ref(group.region("G16"), gradient.name) in sizes


_GROUPS = {group.region("G"): group for group in WeightGroup if group.has_compute_copy}
