"""What a graph's nodes work on: named tensors and runs of whole regions. No shapes or addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import REGIONS, Bank, Region


class Ref(NamedTuple):
    """A planned tensor by region and name; :meth:`MemoryPlan.tensor` says where it lies."""

    region: Region
    name: str

    def __str__(self) -> str:
        return f"{self.region.name}/{self.name}"


@cache
def _regions_between(first: Region, last: Region) -> tuple[Region, ...]:
    if first.bank is not last.bank or first > last:
        fail(PlanError, "region run", f"{first.name}..{last.name}", "one bank, from low to high")
    return tuple(r for r in REGIONS if first <= r <= last and r.bank is first.bank)


class RegionRun(NamedTuple):
    """The regions from ``first`` to ``last`` of one bank: one contiguous span of its bytes."""

    first: Region
    last: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        """Every region of the run, low to high.

        Raises:
            PlanError: the ends lie in different banks or in the wrong order.
        """
        return _regions_between(self.first, self.last)

    def check(self) -> None:
        """Refuse a run that is not one span of one bank.

        Raises:
            PlanError: names the ends.
        """
        _regions_between(self.first, self.last)

    @property
    def bank(self) -> Bank:
        """The bank the run lies in."""
        return self.first.bank

    def __str__(self) -> str:
        if self.first is self.last:
            return self.first.name
        return f"{self.first.name}..{self.last.name}"


Operand = TypeVar("Operand", Ref, RegionRun)


class Operands(Mapping[str, Operand], Generic[Operand]):
    """Operands of a node by role (``"x"``, ``"w"``, ``"dy"``): an ordered, hashable mapping."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Operand | None] | None = None):
        """``items`` in the operation's order; roles that are None are left out."""
        kept = {} if items is None else {k: v for k, v in items.items() if v is not None}
        self._items: dict[str, Operand] = kept

    def __getitem__(self, role: str) -> Operand:
        return self._items[role]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def all(self) -> tuple[Operand, ...]:
        """The operands without their roles, in order."""
        return tuple(self._items.values())

    def map(self, change: Callable[[Operand], Operand]) -> Operands[Operand]:
        """The same roles with every operand changed."""
        return Operands({role: change(operand) for role, operand in self._items.items()})

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operands) and self._items == other._items

    def __repr__(self) -> str:
        return ", ".join(f"{role}={operand}" for role, operand in self._items.items())
