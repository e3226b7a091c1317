"""Proof of a memory plan's rules, by looking at the result alone."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from renaissance.core.errors import PlanError
from renaissance.core.types import REGIONS, Bank, Region, WeightGroup
from renaissance.graph.computation_graph.operands import Ref
from renaissance.graph.memory_plan.layout import Layout
from renaissance.graph.memory_plan.lifetime import Lifetime
from renaissance.graph.memory_plan.persistent import ALIGNMENT
from renaissance.graph.memory_plan.tenants import LANDLORDS
from renaissance.tensor.dtensor import DTensor

_TWIN_ROLES = ("E", "E16", "A", "G", "G16", "M", "V")


def validate(layout: Layout, tensors: Mapping[Ref, DTensor]) -> None:
    """Check order and contiguity of regions, alignment, containment, overlap and twins.

    Raises:
        PlanError: names what breaks a rule, and the rule.
    """
    check_regions(layout)
    check_tensors(layout, tensors)
    check_overlap(layout, tensors)
    check_twins(layout, tensors)


def check_regions(layout: Layout) -> None:
    """All 68 regions, in order, end to end inside their banks."""
    if tuple(layout.spans) != REGIONS:
        raise PlanError(f"regions are {[r.name for r in layout.spans]}, expected all 68 in order")
    top = dict.fromkeys(Bank, 0)
    for span in layout.spans.values():
        if span.offset != top[span.bank]:
            expected = f"{top[span.bank]}, the end of the region before it"
            raise PlanError(f"{span.region.name} begins at {span.offset}, expected {expected}")
        if span.nbytes % ALIGNMENT:
            raise PlanError(
                f"{span.region.name} has {span.nbytes} bytes, expected a multiple of 256"
            )
        top[span.bank] = span.end
    if top != layout.bank_bytes:
        raise PlanError(f"banks have {layout.bank_bytes} bytes, expected {top}")


def check_tensors(layout: Layout, tensors: Mapping[Ref, DTensor]) -> None:
    """Every tensor aligned, inside its region or its landlords', and no larger than its slot."""
    for ref, tensor in tensors.items():
        begin, end, name = _home(layout, ref)
        where = f"{tensor.region.name}/{tensor.name}"
        if tensor.offset % ALIGNMENT:
            raise PlanError(
                f"{where} begins at {tensor.offset}, expected a multiple of {ALIGNMENT}"
            )
        if not begin <= tensor.offset <= tensor.end <= end:
            inside = f"inside {name}, {begin} to {end}"
            raise PlanError(f"{where} fills {tensor.offset} to {tensor.end}, expected {inside}")
        if tensor.nbytes > tensor.slot_bytes:
            raise PlanError(
                f"{where} has {tensor.nbytes} bytes, expected at most {tensor.slot_bytes}"
            )


def _home(layout: Layout, ref: Ref) -> tuple[int, int, str]:
    if ref in layout.tenants:
        offset, nbytes = layout.span(LANDLORDS)
        return offset, offset + nbytes, "the gradients it is a tenant of"
    span = layout.spans[ref.region]
    return span.offset, span.end, "its region"


def check_overlap(layout: Layout, tensors: Mapping[Ref, DTensor]) -> None:
    """No two tensors that live at the same time share a byte."""
    by_region: dict[Region, list[tuple[Ref, DTensor]]] = {}
    for ref, tensor in tensors.items():
        by_region.setdefault(ref.region, []).append((ref, tensor))
    for members in by_region.values():
        _sweep([(layout.lives.get(ref, Lifetime(0, 0)), tensor) for ref, tensor in members])


def _sweep(members: list[tuple[Lifetime, DTensor]]) -> None:
    """Walk through time; whoever is born must fit between the living neighbours."""
    births = sorted(members, key=lambda m: m[0].begin)
    deaths = sorted(members, key=lambda m: m[0].end)
    alive: list[tuple[int, int, str]] = []
    dead = 0
    for life, tensor in births:
        while deaths[dead][0].end < life.begin:
            gone = deaths[dead][1]
            del alive[bisect_left(alive, (gone.offset, gone.end, gone.name))]
            dead += 1
        entry = (tensor.offset, tensor.end, tensor.name)
        index = bisect_left(alive, entry)
        for begin, end, name in alive[max(index - 1, 0) : index + 1]:
            if begin < tensor.end and tensor.offset < end:
                where = f"{tensor.region.name}/{tensor.name} at {tensor.offset} to {tensor.end}"
                raise PlanError(
                    f"{where} overlaps {name} at {begin} to {end}, expected disjoint bytes while "
                    "both live"
                )
        insort(alive, entry)


def check_twins(layout: Layout, tensors: Mapping[Ref, DTensor]) -> None:
    """A weight's gradient, moments, copies and average begin at its element of their regions."""
    for ref, weight in tensors.items():
        if not ref.region.name.startswith("W_") or ref.region.name.startswith("W_EQ"):
            continue
        group = WeightGroup(ref.region.name[2:])
        place = _element(layout, weight)
        for role in _TWIN_ROLES:
            region = Region.__members__.get(_region_name(group, role))
            if region is None or layout.spans[region].nbytes == 0:
                continue
            twin = tensors.get(Ref(region, ref.name))
            if twin is None:
                if region.bank is Bank.PERSISTENT:
                    raise PlanError(f"{ref} has no twin in {region.name}, expected one")
                continue
            if _element(layout, twin) != place or twin.shape != weight.shape:
                raise PlanError(
                    f"{region.name}/{ref.name} begins at element {_element(layout, twin)} of its "
                    f"region with shape {twin.shape}, expected {place} and {weight.shape} as in "
                    f"{ref.region.name}"
                )


def _region_name(group: WeightGroup, role: str) -> str:
    return f"{role[0]}_{group.value}" + ("_FP16" if role.endswith("16") else "")


def _element(layout: Layout, tensor: DTensor) -> int:
    offset = tensor.offset - layout.spans[tensor.region].offset
    return offset // tensor.dtype.itemsize
