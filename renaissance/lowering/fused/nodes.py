"""From a node of the computation graph to calls on banks: one small function per operation.

Each reads the shapes of its tensors from the memory plan and states operands in the order of the
operation's record (``csrc/operations.h``). An operation without an entry in :data:`LOWERINGS`
cannot be lowered in place yet, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from renaissance.core.errors import PlanError, fail
from renaissance.graph.computation_graph.node import Node
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused import convolutions, layers, norms, pools, regions
from renaissance.lowering.fused.operands import Lowering

LOWERINGS: dict[str, Lowering] = {
    **layers.LOWERINGS,
    **convolutions.LOWERINGS,
    **norms.LOWERINGS,
    **pools.LOWERINGS,
    **regions.LOWERINGS,
}
"""How every operation of the graph becomes calls on banks."""


def lower_nodes(scene: Scene, nodes: Iterable[Node]) -> list[InPlaceCall]:
    """The calls of a sequence of nodes.

    Raises:
        PlanError: an operation has no kernel of its own yet.
    """
    calls: list[InPlaceCall] = []
    for node in nodes:
        lowering = LOWERINGS.get(node.op)
        if lowering is None:
            where = f"operation of {node.layer}" if node.layer else "operation"
            fail(
                PlanError, f"{where} in the fused lowering", node.op, f"one of {sorted(LOWERINGS)}"
            )
        calls += lowering(scene, node)
    return calls
