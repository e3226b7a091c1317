"""From a node of the computation graph to calls on banks: layers without a window, and the loss."""

from __future__ import annotations

from typing import Any

from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.graph.memory_plan import DTensor
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.operands import (
    Calls,
    Lowering,
    activation_of,
    at,
    planned_type,
    type_of,
)


def _fc_sizes(scene: Scene, node: ComputeNode, w: DTensor, rows: DTensor) -> dict[str, Any]:
    k, c = w.shape
    activation = ACTIVATION_NUMBERS[node.params.get("activation")]
    sizes = {"n": rows.shape[0], "c": c, "k": k}
    return {**sizes, "type": planned_type(rows), "activation": activation}


def _fc_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = tuple(scene.at(node, role) for role in ("x", "w", "bias", "y", "z"))
    y = scene.tensor(node, "y")
    sizes = _fc_sizes(scene, node, scene.tensor(node, "w"), y)
    sizes |= {"type": planned_type(scene.tensor(node, "x")), "y_type": planned_type(y)}
    return [InPlaceCall(targets.FC_FORWARD, operands, sizes, node.layer)]


def _fc_backward_data(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    gate = scene.at(node, "z") or scene.at(node, "y")
    dy, w, dx = (scene.at(node, role) for role in ("dy", "w", "dx"))
    sizes = _fc_sizes(scene, node, scene.tensor(node, "w"), scene.tensor(node, "dy"))
    operands = (dy, None, w, gate, dx, None, None, None)
    return [InPlaceCall(targets.FC_BACKWARD, operands, sizes, node.layer)]


def _fc_backward_weight(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    dy, x, dw, dbias = (scene.at(node, role) for role in ("dy", "x", "dw", "dbias"))
    sizes = _fc_sizes(scene, node, scene.tensor(node, "dw"), scene.tensor(node, "dy"))
    operands = (dy, x, None, None, None, dw, dbias, None)
    return [InPlaceCall(targets.FC_BACKWARD, operands, sizes, node.layer)]


def _elementwise(scene: Scene, node: ComputeNode, role: str) -> dict[str, Any]:
    tensor = scene.tensor(node, role)
    return {"count": tensor.size, "type": planned_type(tensor)}


def _activation_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = (scene.at(node, "x"), scene.at(node, "y"))
    number = ACTIVATION_NUMBERS[node.params["activation"]]
    sizes = {**_elementwise(scene, node, "x"), "activation": number}
    return [InPlaceCall(targets.ACTIVATION_FORWARD, operands, sizes, node.layer)]


def _activation_backward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    gate = scene.at(node, "z") or scene.at(node, "y")
    number = ACTIVATION_NUMBERS[node.params["activation"]]
    sizes = {**_elementwise(scene, node, "dy"), "activation": number}
    operands = (scene.at(node, "dy"), gate, scene.at(node, "dx"))
    return [InPlaceCall(targets.ACTIVATION_BACKWARD, operands, sizes, node.layer)]


def _dropout_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    x = scene.tensor(node, "x")
    roles = ("x", "seed", "applied_steps", "skipped_steps", "y", "mask")
    sizes = {"rows": x.shape[0], "elements": x.size // x.shape[0], "type": planned_type(x)}
    sizes |= {"layer": scene.layer_index(node.layer)}
    attributes = {**sizes, "p": float(node.params["p"])}
    operands = tuple(scene.at(node, role) for role in roles)
    return [InPlaceCall(targets.DROPOUT_FORWARD, operands, attributes, node.layer)]


def _dropout_backward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = tuple(scene.at(node, role) for role in ("dy", "mask", "dx"))
    attributes = {**_elementwise(scene, node, "dy"), "p": float(node.params["p"])}
    return [InPlaceCall(targets.DROPOUT_BACKWARD, operands, attributes, node.layer)]


def _copy(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = (scene.at(node, "x"), scene.at(node, "y"), None)
    sizes = {"bytes": scene.tensor(node, "x").nbytes}
    return [InPlaceCall(targets.COPY, operands, sizes, node.layer)]


def _softmax_cross_entropy(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    logits = scene.tensor(node, "logits")
    given = ("logits", "labels", "loss_scale")
    roles = (*given, "dlogits", "predicted", "loss", "top1", "top5", "count", "rows")
    sizes = {"n": logits.shape[0], "k": logits.shape[-1], "type": planned_type(logits)}
    attributes = {**sizes, "smoothing": float(scene.recipe.loss.label_smoothing)}
    gradient = scene.tensor(node, "dlogits") if "dlogits" in node.outputs else logits
    attributes |= {"gradient_type": planned_type(gradient)}
    operands = tuple(scene.at(node, role) for role in roles)
    return [InPlaceCall(targets.SOFTMAX_CROSS_ENTROPY, operands, attributes, node.layer)]


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


LOWERINGS: dict[str, Lowering] = {
    "fc_forward": _fc_forward,
    "fc_backward_data": _fc_backward_data,
    "fc_backward_weight": _fc_backward_weight,
    "activation_forward": _activation_forward,
    "activation_backward": _activation_backward,
    "dropout_forward": _dropout_forward,
    "dropout_backward": _dropout_backward,
    "copy": _copy,
    "softmax_cross_entropy_forward_backward": _softmax_cross_entropy,
    "softmax_cross_entropy_forward": _softmax_cross_entropy,
    "add_forward": _add("main", "shortcut", "y"),
    "gradient_sum": _add("a", "b", "dx"),
    "channel_padding_forward": _channel_padding("x", "y"),
    "channel_padding_backward": _channel_padding("dy", "dx"),
}
