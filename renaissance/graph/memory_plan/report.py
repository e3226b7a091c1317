"""MemoryReport: what the plan takes, against what it could have taken."""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.core.types import Bank
from renaissance.graph.memory_plan.allocator import live_bytes
from renaissance.graph.memory_plan.layout import Layout, RegionSpan
from renaissance.graph.memory_plan.lifetime import Lifetime


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of a plan.

    Attributes:
        regions: The regions that are not empty.
        bank_bytes: Size of every bank.
        planned_bytes: All banks.
        tensor_bytes: The sum of all tensors' slots: what a plan without reuse takes.
        live_bytes: The most that is alive in one stage, features that lie in the bytes of dead
            gradients left out: what no plan can go below.
        live_by_region: The same for each region at its own fullest stage, summed: what no plan can
            go below that keeps regions apart.
        gradient_slots: Number of rotating gradient slots.
    """

    regions: tuple[RegionSpan, ...]
    bank_bytes: dict[Bank, int]
    planned_bytes: int
    tensor_bytes: int
    live_bytes: int
    live_by_region: int
    gradient_slots: int

    def __str__(self) -> str:
        lines = [f"{'region':<22}{'planned':>18}{'all tensors':>20}{'live at most':>18}"]
        for span in self.regions:
            numbers = f"{span.nbytes:>18,}{span.tensor_bytes:>20,}{span.live_bytes:>18,}"
            slots = f"  in {len(span.gradient_slots)} slots" if span.gradient_slots else ""
            lines.append(f"{span.region.name:<22}{numbers}{slots}")
        total = f"{self.planned_bytes:>18,}{self.tensor_bytes:>20,}{self.live_bytes:>18,}"
        lines += ["", f"{'total':<22}{total}"]
        lines += [f"{b.value + ' bank':<22}{size:>18,}" for b, size in self.bank_bytes.items()]
        saved = 1 - self.planned_bytes / self.tensor_bytes
        over = self.planned_bytes / self.live_bytes - 1
        apart = self.planned_bytes / self.live_by_region - 1
        lines.append(f"{saved:.1%} below the sum of all tensors")
        lines.append(
            f"{over:.1%} above the bytes alive at once, {apart:.1%} above each region's own"
        )
        return "\n".join(lines)


def memory_report(layout: Layout) -> MemoryReport:
    """The report of a layout."""
    sizes = {ref: slot.nbytes for ref, slot in layout.slots.items()}
    own = {ref: nbytes for ref, nbytes in sizes.items() if ref not in layout.tenants}
    end = max((life.end for life in layout.lives.values()), default=0)
    lives = {ref: layout.lives.get(ref, Lifetime(0, end)) for ref in sizes}
    slots = max(len(span.gradient_slots) for span in layout.spans.values())
    return MemoryReport(
        regions=tuple(span for span in layout.spans.values() if span.nbytes),
        bank_bytes=dict(layout.bank_bytes),
        planned_bytes=sum(layout.bank_bytes.values()),
        tensor_bytes=sum(sizes.values()),
        live_bytes=live_bytes(own, lives),
        live_by_region=sum(span.live_bytes for span in layout.spans.values()),
        gradient_slots=slots,
    )
