"""When a tensor is alive: from the stage that first names it to the stage that last does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from renaissance.core.types import Region
from renaissance.graph.computation_graph.node import Node
from renaissance.graph.computation_graph.operands import Ref


class Lifetime(NamedTuple):
    """Stages from ``begin`` to ``end``, both included."""

    begin: int
    end: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are alive in some stage."""
        return self.begin <= other.end and other.begin <= self.end


REUSED_REGIONS: frozenset[Region] = frozenset(
    region
    for region in Region
    if region.name.startswith(("F_FEATURE", "F_GRAD_SLOT", "T_TEMP")) or region is Region.S_MASK
)
"""Regions whose bytes are handed from tensor to tensor within a step."""


def lifetimes(stages: Iterable[Iterable[Node]]) -> dict[Ref, Lifetime]:
    """Lifetimes of all tensors in the reused regions.

    Args:
        stages: In execution order; the nodes of one stage may run side by side, so what one of them
            reads for the last time is still alive for the others.
    """
    result: dict[Ref, Lifetime] = {}
    for time, stage in enumerate(stages):
        for node in stage:
            for ref in (*node.reads, *node.writes):
                if ref.region in REUSED_REGIONS:
                    begin = result[ref].begin if ref in result else time
                    result[ref] = Lifetime(begin, time)
    return result
