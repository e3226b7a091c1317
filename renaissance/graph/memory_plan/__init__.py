"""The memory plan: 68 regions in four banks, every tensor of every variant at a fixed offset."""

from renaissance.graph.memory_plan.guests import invite, moved_slots
from renaissance.graph.memory_plan.layout import Layout, RegionSpan, lay_out
from renaissance.graph.memory_plan.lifetime import REUSED_REGIONS, Lifetime, lifetimes
from renaissance.graph.memory_plan.persistent import ALIGNMENT, persistent_requirements, roles
from renaissance.graph.memory_plan.plan import MemoryPlan
from renaissance.graph.memory_plan.report import MemoryReport
from renaissance.graph.memory_plan.requirement import Requirement, Scope, VariantShapes
from renaissance.graph.memory_plan.slots import Slot, size_slots
from renaissance.tensor.dtensor import DTensor

__all__ = [
    "ALIGNMENT",
    "DTensor",
    "REUSED_REGIONS",
    "Layout",
    "Lifetime",
    "MemoryPlan",
    "MemoryReport",
    "RegionSpan",
    "Requirement",
    "Scope",
    "Slot",
    "VariantShapes",
    "invite",
    "lay_out",
    "lifetimes",
    "moved_slots",
    "persistent_requirements",
    "roles",
    "size_slots",
]
