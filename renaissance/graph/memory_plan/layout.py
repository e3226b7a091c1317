"""Layout: regions end to end inside their banks, tensors inside regions. One for all variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from renaissance.core.types import REGIONS, Bank, Region
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.graph.memory_plan.allocator import (
    Allocation,
    best_fit,
    in_a_row,
    live_bytes,
    rotating_slots,
)
from renaissance.graph.memory_plan.lifetime import REUSED_REGIONS, Lifetime
from renaissance.graph.memory_plan.slots import Slot
from renaissance.graph.memory_plan.tenants import LANDLORDS, accommodate

GRADIENT_SLOTS = (Region.F_GRAD_SLOT_FP32, Region.F_GRAD_SLOT_FP16)


@dataclass(frozen=True, slots=True)
class RegionSpan:
    """The bytes of a region.

    Attributes:
        region: Which one.
        offset: Its first byte, counted in its bank.
        nbytes: Its size; 0 when the configuration does not need it.
        tensor_bytes: Bytes of all its tensors' slots, as if none shared memory.
        live_bytes: The most that is alive at once: the least any placement could take.
        gradient_slots: Sizes of its rotating slots, if it has any.
    """

    region: Region
    offset: int
    nbytes: int
    tensor_bytes: int
    live_bytes: int
    gradient_slots: tuple[int, ...] = ()

    @property
    def bank(self) -> Bank:
        """The bank it lies in."""
        return self.region.bank

    @property
    def end(self) -> int:
        """First byte after it."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every tensor of every variant lies.

    Attributes:
        spans: The 68 regions in order.
        slots: Every tensor with its size, by ref, region by region.
        offsets: Its first byte, counted in its bank.
        lives: Its lifetime, for tensors in reused regions.
        bank_bytes: Size of every bank.
        tenants: Features that lie in the bytes of gradients (:mod:`.tenants`), not in their region.
    """

    spans: dict[Region, RegionSpan]
    slots: dict[Ref, Slot]
    offsets: dict[Ref, int]
    lives: dict[Ref, Lifetime]
    bank_bytes: dict[Bank, int]
    tenants: frozenset[Ref] = frozenset()

    def span(self, run: RegionRun) -> tuple[int, int]:
        """(offset, bytes) of a run of regions in its bank."""
        first, last = self.spans[run.regions[0]], self.spans[run.regions[-1]]
        return first.offset, last.end - first.offset


def lay_out(slots: Mapping[Ref, Slot], lives: Mapping[Ref, Lifetime]) -> Layout:
    """Place every tensor, in one pass over the regions from low to high.

    Args:
        slots: Sizes by tensor.
        lives: Lifetimes of the tensors in reused regions.
    """
    all_sizes = {ref: slot.nbytes for ref, slot in slots.items()}
    tenants = accommodate(all_sizes, lives)
    by_region: dict[Region, dict[Ref, int]] = {region: {} for region in REGIONS}
    for ref, nbytes in all_sizes.items():
        by_region[ref.region][ref] = nbytes
    top = dict.fromkeys(Bank, 0)
    spans: dict[Region, RegionSpan] = {}
    offsets: dict[Ref, int] = {}
    for region, sizes in by_region.items():
        residents = {ref: nbytes for ref, nbytes in sizes.items() if ref not in tenants}
        allocation, least = _allocate(region, residents, lives)
        begin = top[region.bank]
        spans[region] = RegionSpan(
            region, begin, allocation.nbytes, sum(sizes.values()), least, allocation.slots
        )
        offsets.update((ref, begin + offset) for ref, offset in allocation.offsets.items())
        top[region.bank] = begin + allocation.nbytes
    begin = spans[LANDLORDS.first].offset
    offsets.update((ref, begin + offset) for ref, offset in tenants.items())
    ordered = {ref: slots[ref] for sizes in by_region.values() for ref in sizes}
    return Layout(spans, ordered, offsets, dict(lives), top, frozenset(tenants))


def _allocate(
    region: Region, sizes: Mapping[Ref, int], lives: Mapping[Ref, Lifetime]
) -> tuple[Allocation, int]:
    """The region's tensors placed, and the least bytes they could take."""
    if region not in REUSED_REGIONS:
        allocation = in_a_row(sizes)
        return allocation, allocation.nbytes
    place = rotating_slots if region in GRADIENT_SLOTS else best_fit
    return place(sizes, lives), live_bytes(sizes, lives)
