"""Large gradients lie as guests among the features, in the bytes of activations that are dead.

When the backward pass begins, all features are alive and gradients are few; while it goes on,
features die and the largest gradients come. A gradient moves over where it fits into a hole at its
birth, so the features' region never grows for it; all others stay in their rotating slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from renaissance.core.types import Region
from renaissance.graph.computation_graph.node import Node
from renaissance.graph.computation_graph.operands import Ref
from renaissance.graph.memory_plan.allocator import fitting_guests
from renaissance.graph.memory_plan.lifetime import lifetimes
from renaissance.graph.memory_plan.slots import Slot

HOSTS: dict[Region, Region] = {
    Region.F_GRAD_SLOT_FP32: Region.F_FEATURE_FP32,
    Region.F_GRAD_SLOT_FP16: Region.F_FEATURE_FP16,
}
"""Where the gradients of a region may be guests."""

SMALLEST_GUEST = 1 << 20
"""Bytes below which a gradient stays in its slot: nothing is won by moving it."""


def invite(slots: Mapping[Ref, Slot], stages: Iterable[Iterable[Node]]) -> dict[Ref, Ref]:
    """Which gradients move, and what they are called among the features.

    Args:
        slots: Sizes by tensor.
        stages: The nodes of a train step, in execution order.
    """
    lives = lifetimes(stages)
    moved: dict[Ref, Ref] = {}
    for region, host in HOSTS.items():
        residents = {ref: s.nbytes for ref, s in slots.items() if ref.region is host}
        guests = {ref: s.nbytes for ref, s in slots.items() if ref.region is region}
        large = {ref: nbytes for ref, nbytes in guests.items() if nbytes >= SMALLEST_GUEST}
        living = {ref: nbytes for ref, nbytes in residents.items() if ref in lives}
        moved |= {ref: Ref(host, ref.name) for ref in fitting_guests(living, large, lives)}
    return moved


def moved_slots(slots: Mapping[Ref, Slot], moved: Mapping[Ref, Ref]) -> dict[Ref, Slot]:
    """The slots under their new names, in the old order."""
    return {
        moved.get(ref, ref): replace(slot, requirement=replace(slot.requirement, ref=moved[ref]))
        if ref in moved
        else slot
        for ref, slot in slots.items()
    }
