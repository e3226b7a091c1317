"""Rewrites of a train step's calls: the same results with fewer passes over memory.

Each is a function from calls to calls, and leaves what it does not recognise as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.lowering.fused_nodes import Scene
from renaissance.lowering.in_place import InPlaceCall


def simplify(scene: Scene, calls: Sequence[InPlaceCall]) -> list[InPlaceCall]:
    """All rewrites, one after the other.

    Args:
        scene: Where tensors lie.
        calls: A train step, one call per node of the graph.
    """
    return list(calls)
