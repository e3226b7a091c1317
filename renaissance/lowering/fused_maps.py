"""From a node of the computation graph to calls on banks: everything that works on maps.

Convolutions, batch norms, pools, the residual add and channel padding; importing this module adds
them to :data:`renaissance.lowering.fused_nodes.LOWERINGS`. A node may become two calls where its
parts are passes over memory of their own: a convolution and the statistics of its output.
"""

from __future__ import annotations

from typing import Any

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType
from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.graph.memory_plan import DTensor
from renaissance.lowering import targets
from renaissance.lowering.ffi import ACTIVATION_NUMBERS, TYPE_NUMBERS
from renaissance.lowering.fused_nodes import LOWERINGS, Lowering, Scene
from renaissance.lowering.in_place import InPlaceCall, Location
from renaissance.lowering.targets import Target

Calls = list[InPlaceCall]
Places = tuple[Location | None, ...]

PARTIAL_ROWS = 512
"""Rows a plan reserves for the partial sums of a reduction."""
PARTIAL_SUMS = PARTIAL_ROWS * 256
"""Partial sums of one kind that a reduction leaves, at most: they fill the device."""
ROWS_OF_A_BLOCK = 32
"""Pixels at least that one block of a reduction reads."""
SUMS_OF_A_BLOCK = 256
"""Output pixels at least that one piece of a depthwise weight gradient covers."""

_NO_POOL = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad"), 0)


def partial_rows(rows: int, channels: int) -> int:
    """Partial sums that a reduction over pixels is split into: fewer for a map of many channels."""
    enough = PARTIAL_SUMS // channels
    return max(1, min(PARTIAL_ROWS, enough, -(-rows // ROWS_OF_A_BLOCK)))


def _at(scene: Scene, node: ComputeNode, *roles: str) -> Places:
    return tuple(scene.at(node, role) for role in roles)


def _map(scene: Scene, node: ComputeNode, role: str) -> DTensor:
    tensor = scene.tensor(node, role)
    if len(tensor.shape) != 4:
        fail(PlanError, f"shape of {tensor.name}", tensor.shape, "(N, H, W, C)")
    return tensor


def _type(scene: Scene, node: ComputeNode, *roles: str) -> int:
    """The number of the element type that all these operands share."""
    tensors = [scene.tensor(node, role) for role in roles if scene.at(node, role) is not None]
    first = tensors[0]
    if first.dtype not in TYPE_NUMBERS:
        fail(PlanError, f"type of {first.name}", first.dtype.value, "float32 or float16")
    for tensor in tensors[1:]:
        if tensor.dtype is not first.dtype:
            what = f"type of {tensor.name} in {node.op} of {node.layer}"
            fail(PlanError, what, tensor.dtype.value, f"{first.dtype.value}, as {first.name} has")
    return TYPE_NUMBERS[first.dtype]


def _activation(node: ComputeNode) -> int:
    return ACTIVATION_NUMBERS[node.params.get("activation")]


def _rows(scene: Scene, node: ComputeNode, x: str, constant: str) -> dict[str, int]:
    """Rows and channels as the norm counts them: behind a flatten its x still has a map's shape."""
    channels = scene.tensor(node, constant).size
    return {"rows": scene.tensor(node, x).size // channels, "c": channels}


# -- convolutions ---------------------------------------------------------------------------------

_MAPS = {"x": "x", "y": "y", "dx": "x", "dy": "y"}


def _conv_sizes(scene: Scene, node: ComputeNode, x: str, w: str, y: str) -> dict[str, int]:
    inputs, filters, outputs = _map(scene, node, x), _map(scene, node, w), _map(scene, node, y)
    n, h, width, c = inputs.shape
    k, r, s, channels = filters.shape
    _, p, q, _ = outputs.shape
    if c % channels:
        what = f"channels of {filters.name} {filters.shape}"
        fail(PlanError, what, channels, f"a divisor of the {c} of {inputs.name}")
    sizes = {"n": n, "h": h, "w": width, "c": c, "k": k, "p": p, "q": q, "r": r, "s": s}
    window = {"stride": node.params["stride"], "pad": node.params["pad"]}
    return {**sizes, **window, "groups": c // channels}


def _workspace(scene: Scene, node: ComputeNode) -> tuple[Location | None, int]:
    place = scene.at(node, "workspace")
    return place, 0 if place is None else place.nbytes


def _is_depthwise(node: ComputeNode) -> bool:
    return node.op.startswith("depthwise")


def _conv_forward(scene: Scene, node: ComputeNode) -> Calls:
    sizes: dict[str, Any] = _conv_sizes(scene, node, "x", "w", "y")
    sizes["type"] = _type(scene, node, "x", "w")
    operands = _at(scene, node, "x", "w", "y")
    if _is_depthwise(node):
        _type(scene, node, "x", "y")
        return [InPlaceCall(targets.DEPTHWISE_CONV_FORWARD, operands, sizes, node.layer)]
    workspace, limit = _workspace(scene, node)
    sizes |= {"y_type": _type(scene, node, "y"), "workspace_bytes": limit}
    return [InPlaceCall(targets.CONV_FORWARD, (*operands, workspace), sizes, node.layer)]


def _conv_backward_data(scene: Scene, node: ComputeNode) -> Calls:
    sizes: dict[str, Any] = _conv_sizes(scene, node, "dx", "w", "dy")
    sizes["type"] = _type(scene, node, "dy", "w", "dx")
    operands = _at(scene, node, "dy", "w", "dx")
    if _is_depthwise(node):
        return [InPlaceCall(targets.DEPTHWISE_CONV_BACKWARD_DATA, operands, sizes, node.layer)]
    workspace, sizes["workspace_bytes"] = _workspace(scene, node)
    return [InPlaceCall(targets.CONV_BACKWARD_DATA, (*operands, workspace), sizes, node.layer)]


def _conv_backward_weight(scene: Scene, node: ComputeNode) -> Calls:
    sizes: dict[str, Any] = _conv_sizes(scene, node, "x", "dw", "dy")
    sizes["type"] = _type(scene, node, "x", "dy", "dw")
    operands = _at(scene, node, "x", "dy", "dw")
    workspace, limit = _workspace(scene, node)
    if not _is_depthwise(node):
        sizes["workspace_bytes"] = limit
        target = targets.CONV_BACKWARD_WEIGHT
        return [InPlaceCall(target, (*operands, workspace), sizes, node.layer)]
    sizes["partial_rows"] = depthwise_pieces(sizes, limit)
    if sizes["partial_rows"] == 1:
        workspace = None
    target = targets.DEPTHWISE_CONV_BACKWARD_WEIGHT
    return [InPlaceCall(target, (*operands, workspace), sizes, node.layer)]


def depthwise_pieces(sizes: dict[str, Any], limit: int) -> int:
    """Pieces a depthwise weight gradient is summed in, as many as help and the workspace holds.

    Args:
        sizes: n, p, q, c, r, s of the convolution.
        limit: Bytes of workspace.
    """
    row_bytes = sizes["r"] * sizes["s"] * sizes["c"] * 4
    wanted = -(-sizes["n"] * sizes["p"] * sizes["q"] // SUMS_OF_A_BLOCK)
    return max(1, min(PARTIAL_ROWS, wanted, limit // row_bytes))


def _conv_statistics_forward(scene: Scene, node: ComputeNode) -> Calls:
    """In half precision one call, so that a library may sum while it convolves."""
    convolution, statistics = *_conv_forward(scene, node), *_statistics(scene, node, "y")
    halves = scene.tensor(node, "x").dtype is scene.tensor(node, "y").dtype is DType.FP16
    if _is_depthwise(node) or not halves:
        return [convolution, statistics]
    operands = (*convolution.operands, *statistics.operands[1:])
    sizes = {**statistics.attributes, **convolution.attributes}
    del sizes["rows"]
    return [InPlaceCall(targets.CONV_FORWARD_STATISTICS, operands, sizes, node.layer)]


def _conv_affine_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = _at(scene, node, "y", "scale", "bias", "shortcut", "y")
    sizes = {**_rows(scene, node, "y", "scale"), "type": _type(scene, node, "x", "y", "shortcut")}
    sizes["activation"] = _activation(node)
    affine = InPlaceCall(targets.AFFINE_FORWARD, operands, sizes, node.layer)
    return [*_conv_forward(scene, node), affine]


# -- batch norm -----------------------------------------------------------------------------------

_NORM = ("gamma", "beta", "mean", "inverse_std")
_SHORTCUT_NORM = tuple(f"shortcut_{role}" for role in _NORM)
_NONE: Places = (None, None, None, None)


def _statistics(scene: Scene, node: ComputeNode, x: str) -> Calls:
    sizes: dict[str, Any] = _rows(scene, node, x, "mean")
    sizes |= {
        "partial_rows": partial_rows(sizes["rows"], sizes["c"]),
        "type": _type(scene, node, x),
    }
    constants = {name: float(node.params[name]) for name in ("momentum", "eps")}
    results = ("mean", "inverse_std", "next_mean", "next_var", "partial")
    operands = _at(scene, node, x, "prev_mean", "prev_var", *results)
    target = targets.BATCH_NORM_STATISTICS
    return [InPlaceCall(target, operands, {**sizes, **constants}, node.layer)]


def _apply(scene: Scene, node: ComputeNode) -> Calls:
    roles = ("x", *_NORM, "shortcut", *_SHORTCUT_NORM, "y", "z")
    sizes = {**_rows(scene, node, "x", "gamma"), "activation": _activation(node)}
    sizes["type"] = _type(scene, node, "x", "shortcut", "y", "z")
    return [InPlaceCall(targets.BATCH_NORM_APPLY, _at(scene, node, *roles), sizes, node.layer)]


def _batch_norm_forward(scene: Scene, node: ComputeNode) -> Calls:
    return [*_statistics(scene, node, "x"), *_apply(scene, node)]


def _batch_norm_backward(scene: Scene, node: ComputeNode) -> Calls:
    gate = scene.at(node, "z") or scene.at(node, "y")
    results = ("dx", "dgamma", "dbeta", "dshortcut", "dshortcut_gamma", "dshortcut_beta")
    operands = (
        *_at(scene, node, "dy"),
        gate,
        *_at(scene, node, "argmax", "x", *_NORM, "shortcut", *_SHORTCUT_NORM),
        *_at(scene, node, *results, "partial", "addend"),
    )
    sizes: dict[str, Any] = {**_NO_POOL, **_rows(scene, node, "x", "gamma"), "argmax_bytes": 0}
    if scene.at(node, "argmax") is not None:
        sizes |= {**_pool_sizes(scene, node, "x", "dy"), "argmax_bytes": _argmax_bytes(scene, node)}
    sizes |= {
        "partial_rows": partial_rows(sizes["rows"], sizes["c"]),
        "activation": _activation(node),
    }
    maps = ("dy", "addend", "x", "y", "z", "shortcut", "dx", "dshortcut")
    sizes["type"] = _type(scene, node, *maps)
    return [InPlaceCall(targets.BATCH_NORM_BACKWARD, operands, sizes, node.layer)]


def _batch_norm_fold(scene: Scene, node: ComputeNode) -> Calls:
    operands = _at(scene, node, "gamma", "beta", "mean", "var", "scale", "bias")
    sizes = {"c": scene.tensor(node, "gamma").size, "eps": float(node.params["eps"])}
    return [InPlaceCall(targets.BATCH_NORM_FOLD, operands, sizes, node.layer)]


def _affine_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = _at(scene, node, "x", "scale", "bias", "shortcut", "y")
    sizes = {**_rows(scene, node, "x", "scale"), "activation": _activation(node)}
    sizes["type"] = _type(scene, node, "x", "y")
    return [InPlaceCall(targets.AFFINE_FORWARD, operands, sizes, node.layer)]


# -- pools ----------------------------------------------------------------------------------------


def _pool_sizes(scene: Scene, node: ComputeNode, x: str, y: str) -> dict[str, Any]:
    n, h, w, c = _map(scene, node, x).shape
    _, p, q, _ = _map(scene, node, y).shape
    window = {name: node.params[name] for name in ("kernel", "stride", "pad")}
    return {"n": n, "h": h, "w": w, "c": c, "p": p, "q": q, **window}


def _argmax_bytes(scene: Scene, node: ComputeNode) -> int:
    if scene.at(node, "argmax") is None:
        return 0
    return 1 if scene.tensor(node, "argmax").dtype is DType.UINT8 else 4


def _max_pool_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = _at(scene, node, "x", *_NORM, "y", "argmax")
    sizes = {**_pool_sizes(scene, node, "x", "y"), "type": _type(scene, node, "x", "y")}
    sizes |= {"activation": _activation(node), "argmax_bytes": _argmax_bytes(scene, node)}
    return [InPlaceCall(targets.MAX_POOL_FORWARD, operands, sizes, node.layer)]


def _max_pool_backward(scene: Scene, node: ComputeNode) -> Calls:
    operands = _at(scene, node, "dy", "argmax", "dx")
    sizes = {**_pool_sizes(scene, node, "dx", "dy"), "type": _type(scene, node, "dy", "dx")}
    sizes["argmax_bytes"] = _argmax_bytes(scene, node)
    return [InPlaceCall(targets.MAX_POOL_BACKWARD, operands, sizes, node.layer)]


def _average_pool(target: Target, source: str, result: str) -> Lowering:
    """Forward from x to y, backward from dy to dx."""
    x, y = (source, result) if source == "x" else (result, source)

    def lower(scene: Scene, node: ComputeNode) -> Calls:
        sizes = {**_pool_sizes(scene, node, x, y), "type": _type(scene, node, source, result)}
        return [InPlaceCall(target, _at(scene, node, source, result), sizes, node.layer)]

    return lower


def _pixels(x: DTensor) -> dict[str, int]:
    n, h, w, c = x.shape
    return {"n": n, "pixels": h * w, "c": c}


def _global_average_pool_forward(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(_map(scene, node, "x")), "type": _type(scene, node, "x")}
    sizes["y_type"] = _type(scene, node, "y")
    target = targets.GLOBAL_AVERAGE_POOL_FORWARD
    return [InPlaceCall(target, _at(scene, node, "x", "y"), sizes, node.layer)]


def _global_average_pool_backward(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(_map(scene, node, "dx")), "type": _type(scene, node, "dy", "dx")}
    target = targets.GLOBAL_AVERAGE_POOL_BACKWARD
    return [InPlaceCall(target, _at(scene, node, "dy", "dx"), sizes, node.layer)]


def _gap_fc_forward(scene: Scene, node: ComputeNode) -> Calls:
    x, w, y = _map(scene, node, "x"), scene.tensor(node, "w"), scene.tensor(node, "y")
    number = _type(scene, node, "x", "pooled", "w")
    pooled = scene.at(node, "pooled")
    sizes = {**_pixels(x), "type": number, "y_type": number}
    target = targets.GLOBAL_AVERAGE_POOL_FORWARD
    pool = InPlaceCall(target, (scene.at(node, "x"), pooled), sizes, node.layer)
    k, c = w.shape
    operands = (pooled, *_at(scene, node, "w", "bias", "y"), None)
    sizes = {"n": y.shape[0], "c": c, "k": k, "type": number, "activation": 0}
    sizes["y_type"] = _type(scene, node, "y")
    return [pool, InPlaceCall(targets.FC_FORWARD, operands, sizes, node.layer)]


def _gap_fc_backward_data(scene: Scene, node: ComputeNode) -> Calls:
    sizes = {**_pixels(_map(scene, node, "dx")), "type": _type(scene, node, "dy", "w", "dx")}
    sizes["k"] = scene.tensor(node, "w").shape[0]
    operands = _at(scene, node, "dy", "w", "dx")
    return [InPlaceCall(targets.GAP_FC_BACKWARD_DATA, operands, sizes, node.layer)]


# -- adding and padding ---------------------------------------------------------------------------


def _add(a: str, b: str, y: str) -> Lowering:
    def lower(scene: Scene, node: ComputeNode) -> Calls:
        operands = (*_at(scene, node, a, b, y), scene.at(node, "z"))
        sizes = {"count": scene.tensor(node, y).size, "activation": _activation(node)}
        sizes["type"] = _type(scene, node, a, b, y, "z")
        return [InPlaceCall(targets.ADD_FORWARD, operands, sizes, node.layer)]

    return lower


def _channel_padding(source: str, result: str) -> Lowering:
    def lower(scene: Scene, node: ComputeNode) -> Calls:
        x, y = scene.tensor(node, source), scene.tensor(node, result)
        sizes = {"pixels": x.size // x.shape[-1], "x_channels": x.shape[-1]}
        sizes |= {"y_channels": y.shape[-1], "type": _type(scene, node, source, result)}
        operands = _at(scene, node, source, result)
        return [InPlaceCall(targets.CHANNEL_PADDING, operands, sizes, node.layer)]

    return lower


def _convolutions(stem: str) -> dict[str, Lowering]:
    return {
        f"{stem}_forward": _conv_forward,
        f"{stem}_statistics_forward": _conv_statistics_forward,
        f"{stem}_affine_forward": _conv_affine_forward,
        f"{stem}_backward_data": _conv_backward_data,
        f"{stem}_backward_weight": _conv_backward_weight,
    }


MAP_LOWERINGS: dict[str, Lowering] = {
    **_convolutions("conv"),
    **_convolutions("depthwise_conv"),
    **_convolutions("group_conv"),
    "batch_norm_forward": _batch_norm_forward,
    "batch_norm_apply": _apply,
    "batch_norm_add_forward": _apply,
    "batch_norm_backward": _batch_norm_backward,
    "batch_norm_add_backward": _batch_norm_backward,
    "batch_norm_max_pool_forward": _max_pool_forward,
    "batch_norm_max_pool_backward": _batch_norm_backward,
    "batch_norm_fold": _batch_norm_fold,
    "affine_forward": _affine_forward,
    "max_pool_forward": _max_pool_forward,
    "max_pool_backward": _max_pool_backward,
    "average_pool_forward": _average_pool(targets.AVERAGE_POOL_FORWARD, "x", "y"),
    "average_pool_backward": _average_pool(targets.AVERAGE_POOL_BACKWARD, "dy", "dx"),
    "global_average_pool_forward": _global_average_pool_forward,
    "global_average_pool_backward": _global_average_pool_backward,
    "gap_fc_forward": _gap_fc_forward,
    "gap_fc_backward_data": _gap_fc_backward_data,
    "add_forward": _add("main", "shortcut", "y"),
    "gradient_sum": _add("a", "b", "dx"),
    "channel_padding_forward": _channel_padding("x", "y"),
    "channel_padding_backward": _channel_padding("dy", "dx"),
}
"""How every operation on maps becomes calls on banks."""

LOWERINGS.update(MAP_LOWERINGS)
