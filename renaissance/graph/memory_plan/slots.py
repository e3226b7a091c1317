"""The bytes every tensor gets: its largest need over the variants it exists in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from renaissance.core.errors import PlanError
from renaissance.graph.computation_graph.operands import Ref
from renaissance.graph.memory_plan.persistent import ALIGNMENT
from renaissance.graph.memory_plan.requirement import Requirement, VariantShapes


@dataclass(frozen=True, slots=True)
class Slot:
    """A requirement with its size settled.

    Attributes:
        requirement: The tensor.
        shapes: Its shape in every variant, None where it does not exist.
        nbytes: Bytes reserved for it in all variants, a multiple of the alignment.
    """

    requirement: Requirement
    shapes: tuple[tuple[int, ...] | None, ...]
    nbytes: int

    @property
    def ref(self) -> Ref:
        """Region and name."""
        return self.requirement.ref


def align(size: int, unit: int = ALIGNMENT) -> int:
    """The next multiple of a unit."""
    return -(-size // unit) * unit


def size_slot(requirement: Requirement, variants: Sequence[VariantShapes]) -> Slot:
    """The slot of one tensor."""
    rule, covers = requirement.shape, requirement.scope.covers
    shapes = tuple(
        (rule if isinstance(rule, tuple) else rule(shapes)) if covers(shapes.variant) else None
        for shapes in variants
    )
    unit = requirement.slot_elements
    elements = max(prod(shape) for shape in set(shapes) if shape is not None)
    return Slot(requirement, shapes, align(align(elements, unit) * requirement.dtype.itemsize))


def size_slots(
    requirements: Iterable[Requirement], variants: Sequence[VariantShapes]
) -> dict[Ref, Slot]:
    """The slot of every tensor, in the given order.

    Raises:
        PlanError: two tensors of a region have one name.
    """
    slots: dict[Ref, Slot] = {}
    for requirement in requirements:
        if requirement.ref in slots:
            raise PlanError(
                f"tensor {requirement.ref} is required twice, expected one of that name"
            )
        slots[requirement.ref] = size_slot(requirement, variants)
    return slots
