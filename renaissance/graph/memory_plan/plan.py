"""MemoryPlan: a layout seen through the shapes of one variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Bank, Region, Variant
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.graph.memory_plan.dump import dump_layout
from renaissance.graph.memory_plan.layout import Layout, RegionSpan
from renaissance.graph.memory_plan.lifetime import Lifetime
from renaissance.graph.memory_plan.report import MemoryReport, memory_report
from renaissance.graph.memory_plan.slots import Slot
from renaissance.graph.memory_plan.validate import validate
from renaissance.graph.options import ShapeId
from renaissance.tensor.dtensor import DTensor


class MemoryPlan:
    """Every tensor of a variant with its place.

    Offsets are the same in all variants of a network; shapes differ, and so does which tensors
    exist (training's or inference's). Variants of equal input shape share one plan, with both.
    """

    def __init__(self, layout: Layout, variants: Sequence[Variant], shape_id: ShapeId):
        """
        Args:
            layout: Shared by all plans of a network.
            variants: The variants whose shapes it shows.
            shape_id: Their input shape.
        """
        self.layout, self.variants, self.shape_id = layout, tuple(variants), shape_id

    # -- tensors ----------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> dict[Ref, DTensor]:
        """All tensors of the variant, region by region."""
        return {
            ref: DTensor(
                id=index,
                name=ref.name,
                shape=shape,
                dtype=slot.requirement.dtype,
                region=ref.region,
                offset=self.layout.offsets[ref],
                slot_bytes=slot.nbytes,
            )
            for index, (ref, slot) in enumerate(self.layout.slots.items())
            if (shape := self._shape(slot)) is not None
        }

    def _shape(self, slot: Slot) -> tuple[int, ...] | None:
        for variant in self.variants:
            if slot.shapes[variant] is not None:
                return slot.shapes[variant]
        return None

    def tensor(self, ref: Ref | tuple[Region, str]) -> DTensor:
        """Where a tensor lies, and its shape in this variant.

        Raises:
            PlanError: there is none of that name in that region.
        """
        found = self.tensors.get(Ref(*ref))
        if found is None:
            names = sorted(t.name for t in self.tensors_in(ref[0]))
            where = f"tensor of {ref[0].name} in {self._title}"
            fail(PlanError, where, ref[1], f"one of {names}")
        return found

    def tensors_in(self, region: Region) -> Iterator[DTensor]:
        """The tensors of a region, in memory order."""
        found = (t for t in self.tensors.values() if t.region is region)
        return iter(sorted(found, key=lambda t: (t.offset, t.id)))

    def lifetime(self, ref: Ref) -> Lifetime | None:
        """First and last stage of a tensor that shares its bytes with others; else None."""
        return self.layout.lives.get(ref)

    # -- regions and banks ------------------------------------------------------------------------

    @property
    def regions(self) -> tuple[RegionSpan, ...]:
        """The 68 regions in order."""
        return tuple(self.layout.spans.values())

    def region(self, region: Region) -> RegionSpan:
        """The bytes of a region."""
        return self.layout.spans[region]

    def is_empty(self, region: Region) -> bool:
        """Whether the configuration does not need a region."""
        return self.layout.spans[region].nbytes == 0

    def span(self, run: RegionRun) -> tuple[int, int]:
        """(offset, bytes) of a run of regions in its bank."""
        return self.layout.span(run)

    def bank_bytes(self, bank: Bank) -> int:
        """Size of a bank."""
        return self.layout.bank_bytes[bank]

    @property
    def total_bytes(self) -> int:
        """All banks together: what the program takes from the device."""
        return sum(self.layout.bank_bytes.values())

    # -- for eyes, and for doubt ------------------------------------------------------------------

    def validate(self) -> None:
        """Prove the plan's rules; see :mod:`renaissance.graph.memory_plan.validate`.

        Raises:
            PlanError: names the first tensor or region that breaks one.
        """
        validate(self.layout, self.tensors)

    def dump_layout(self) -> str:
        """Every region and tensor with offset, size and lifetime, as text."""
        return dump_layout(self.layout, self.tensors)

    def memory_report(self) -> MemoryReport:
        """Planned bytes against the sum of all tensors and against the least possible."""
        return memory_report(self.layout)

    def __repr__(self) -> str:
        return (
            f"MemoryPlan({self._title}, {self.shape_id}, {len(self.tensors)} tensors, "
            f"{self.total_bytes:,} bytes)"
        )

    @property
    def _title(self) -> str:
        return "+".join(variant.name.lower() for variant in self.variants)
