"""From a node of the computation graph to calls on banks: pools, and the classifier behind one."""

from __future__ import annotations

from typing import Any

from renaissance.core.types import DType
from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.graph.memory_plan import DTensor
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.fused.operands import (
    NORM,
    Calls,
    Lowering,
    activation_of,
    at,
    map_of,
    type_of,
)


def pool_sizes(scene: Scene, node: ComputeNode, x: str, y: str) -> dict[str, Any]:
    """Sizes of a map and of what its windows become, and the window."""
    n, h, w, c = map_of(scene, node, x).shape
    _, p, q, _ = map_of(scene, node, y).shape
    window = {name: node.params[name] for name in ("kernel", "stride", "pad")}
    return {"n": n, "h": h, "w": w, "c": c, "p": p, "q": q, **window}


def argmax_bytes(scene: Scene, node: ComputeNode) -> int:
    """Bytes of a place within a window; 0 where none is kept."""
    if scene.at(node, "argmax") is None:
        return 0
    return 1 if scene.tensor(node, "argmax").dtype is DType.UINT8 else 4


def _max_pool_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = at(scene, node, "x", *NORM, "y", "argmax")
    sizes = {**pool_sizes(scene, node, "x", "y"), "type": type_of(scene, node, "x", "y")}
    sizes |= {"activation": activation_of(node), "argmax_bytes": argmax_bytes(scene, node)}
    return [InPlaceCall(targets.MAX_POOL_FORWARD, operands, sizes, node.layer)]


def _max_pool_backward(scene: Scene, node: ComputeNode) -> Calls:
    operands = at(scene, node, "dy", "argmax", "dx")
    sizes = {**pool_sizes(scene, node, "dx", "dy"), "type": type_of(scene, node, "dy", "dx")}
    sizes["argmax_bytes"] = argmax_bytes(scene, node)
    return [InPlaceCall(targets.MAX_POOL_BACKWARD, operands, sizes, node.layer)]


def _average_pool(target: Target, source: str, result: str) -> Lowering:
    """Forward from x to y, backward from dy to dx."""
    x, y = (source, result) if source == "x" else (result, source)

    def lower(scene: Scene, node: ComputeNode) -> Calls:
        sizes = {**pool_sizes(scene, node, x, y), "type": type_of(scene, node, source, result)}
        return [InPlaceCall(target, at(scene, node, source, result), sizes, node.layer)]

    return lower


def _pixels(x: DTensor) -> dict[str, int]:
    n, h, w, c = x.shape
    return {"n": n, "pixels": h * w, "c": c}


def _global_average_pool_forward(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(map_of(scene, node, "x")), "type": type_of(scene, node, "x")}
    sizes["y_type"] = type_of(scene, node, "y")
    target = targets.GLOBAL_AVERAGE_POOL_FORWARD
    return [InPlaceCall(target, at(scene, node, "x", "y"), sizes, node.layer)]


def _global_average_pool_backward(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(map_of(scene, node, "dx")), "type": type_of(scene, node, "dy", "dx")}
    target = targets.GLOBAL_AVERAGE_POOL_BACKWARD
    return [InPlaceCall(target, at(scene, node, "dy", "dx"), sizes, node.layer)]


def _gap_fc_forward(scene: Scene, node: ComputeNode) -> Calls:
    x, w, y = map_of(scene, node, "x"), scene.tensor(node, "w"), scene.tensor(node, "y")
    number = type_of(scene, node, "x", "pooled", "w")
    pooled = scene.at(node, "pooled")
    sizes = {**_pixels(x), "type": number, "y_type": number}
    target = targets.GLOBAL_AVERAGE_POOL_FORWARD
    pool = InPlaceCall(target, (scene.at(node, "x"), pooled), sizes, node.layer)
    k, c = w.shape
    operands = (pooled, *at(scene, node, "w", "bias", "y"), None)
    sizes = {"n": y.shape[0], "c": c, "k": k, "type": number, "activation": 0}
    sizes["y_type"] = type_of(scene, node, "y")
    return [pool, InPlaceCall(targets.FC_FORWARD, operands, sizes, node.layer)]


def _gap_fc_backward_data(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(map_of(scene, node, "dx")), "type": type_of(scene, node, "dy", "w", "dx")}
    sizes["k"] = scene.tensor(node, "w").shape[0]
    operands = at(scene, node, "dy", "w", "dx")
    return [InPlaceCall(targets.GAP_FC_BACKWARD_DATA, operands, sizes, node.layer)]


LOWERINGS: dict[str, Lowering] = {
    "batch_norm_max_pool_forward": _max_pool_forward,
    "max_pool_forward": _max_pool_forward,
    "max_pool_backward": _max_pool_backward,
    "average_pool_forward": _average_pool(targets.AVERAGE_POOL_FORWARD, "x", "y"),
    "average_pool_backward": _average_pool(targets.AVERAGE_POOL_BACKWARD, "dy", "dx"),
    "global_average_pool_forward": _global_average_pool_forward,
    "global_average_pool_backward": _global_average_pool_backward,
    "gap_fc_forward": _gap_fc_forward,
    "gap_fc_backward_data": _gap_fc_backward_data,
}
"""How every pool becomes calls on banks."""
