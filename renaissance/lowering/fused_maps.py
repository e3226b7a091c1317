"""From a node of the computation graph to calls on banks: everything that works on maps.

Importing this module adds convolutions, norms and pools, the residual add and channel padding to
:data:`renaissance.lowering.fused_nodes.LOWERINGS`.
"""

from __future__ import annotations

from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.lowering import targets
from renaissance.lowering.fused_convolutions import CONVOLUTION_LOWERINGS
from renaissance.lowering.fused_nodes import LOWERINGS, Lowering, Scene
from renaissance.lowering.fused_norms import NORM_LOWERINGS
from renaissance.lowering.fused_operands import Calls, activation_of, at, type_of
from renaissance.lowering.fused_pools import POOL_LOWERINGS
from renaissance.lowering.in_place import InPlaceCall


def _add(a: str, b: str, y: str) -> Lowering:
    def lower(scene: Scene, node: ComputeNode) -> Calls:
        operands = (*at(scene, node, a, b, y), scene.at(node, "z"))
        sizes = {"count": scene.tensor(node, y).size, "activation": activation_of(node)}
        sizes["type"] = type_of(scene, node, a, b, y, "z")
        return [InPlaceCall(targets.ADD_FORWARD, operands, sizes, node.layer)]

    return lower


def _channel_padding(source: str, result: str) -> Lowering:
    def lower(scene: Scene, node: ComputeNode) -> Calls:
        x, y = scene.tensor(node, source), scene.tensor(node, result)
        sizes = {"pixels": x.size // x.shape[-1], "x_channels": x.shape[-1]}
        sizes |= {"y_channels": y.shape[-1], "type": type_of(scene, node, source, result)}
        operands = at(scene, node, source, result)
        return [InPlaceCall(targets.CHANNEL_PADDING, operands, sizes, node.layer)]

    return lower


MAP_LOWERINGS: dict[str, Lowering] = {
    **CONVOLUTION_LOWERINGS,
    **NORM_LOWERINGS,
    **POOL_LOWERINGS,
    "add_forward": _add("main", "shortcut", "y"),
    "gradient_sum": _add("a", "b", "dx"),
    "channel_padding_forward": _channel_padding("x", "y"),
    "channel_padding_backward": _channel_padding("dy", "dx"),
}
"""How every operation on maps becomes calls on banks."""

LOWERINGS.update(MAP_LOWERINGS)
