"""From a node of the computation graph to calls on banks: everything that works on maps.

Importing this module adds convolutions, norms and pools, the residual add and channel padding to
:data:`renaissance.lowering.fused.nodes.LOWERINGS`.
"""

from __future__ import annotations

from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.fused.convolutions import CONVOLUTION_LOWERINGS
from renaissance.lowering.fused.nodes import LOWERINGS, Lowering, Scene
from renaissance.lowering.fused.norms import NORM_LOWERINGS
from renaissance.lowering.fused.operands import Calls, activation_of, at, type_of
from renaissance.lowering.fused.pools import POOL_LOWERINGS


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
