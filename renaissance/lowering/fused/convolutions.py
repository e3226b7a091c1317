"""From a node of the computation graph to calls on banks: convolutions, dense, grouped, depthwise.

A node becomes two calls where its parts are passes over memory of their own: a convolution and the
affine behind it, or the statistics of its output where no library sums them.
"""

from __future__ import annotations

from typing import Any

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType
from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.norms import PARTIAL_ROWS, statistics
from renaissance.lowering.fused.operands import (
    Calls,
    Lowering,
    activation_of,
    at,
    map_of,
    rows_of,
    type_of,
)

SUMS_OF_A_BLOCK = 256
"""Output pixels at least that one piece of a depthwise weight gradient covers."""


def _conv_sizes(scene: Scene, node: ComputeNode, x: str, w: str, y: str) -> dict[str, int]:
    inputs, filters, outputs = (map_of(scene, node, role) for role in (x, w, y))
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
    sizes["type"] = type_of(scene, node, "x", "w")
    operands = at(scene, node, "x", "w", "y")
    if _is_depthwise(node):
        type_of(scene, node, "x", "y")
        return [InPlaceCall(targets.DEPTHWISE_CONV_FORWARD, operands, sizes, node.layer)]
    workspace, limit = _workspace(scene, node)
    sizes |= {"y_type": type_of(scene, node, "y"), "workspace_bytes": limit}
    return [InPlaceCall(targets.CONV_FORWARD, (*operands, workspace), sizes, node.layer)]


def _conv_backward_data(scene: Scene, node: ComputeNode) -> Calls:
    sizes: dict[str, Any] = _conv_sizes(scene, node, "dx", "w", "dy")
    sizes["type"] = type_of(scene, node, "dy", "w", "dx")
    operands = at(scene, node, "dy", "w", "dx")
    if _is_depthwise(node):
        return [InPlaceCall(targets.DEPTHWISE_CONV_BACKWARD_DATA, operands, sizes, node.layer)]
    workspace, sizes["workspace_bytes"] = _workspace(scene, node)
    return [InPlaceCall(targets.CONV_BACKWARD_DATA, (*operands, workspace), sizes, node.layer)]


def _conv_backward_weight(scene: Scene, node: ComputeNode) -> Calls:
    sizes: dict[str, Any] = _conv_sizes(scene, node, "x", "dw", "dy")
    sizes["type"] = type_of(scene, node, "x", "dy", "dw")
    operands = at(scene, node, "x", "dy", "dw")
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
    convolution, sums = *_conv_forward(scene, node), *statistics(scene, node, "y")
    halves = scene.tensor(node, "x").dtype is scene.tensor(node, "y").dtype is DType.FP16
    if _is_depthwise(node) or not halves:
        return [convolution, sums]
    operands = (*convolution.operands, *sums.operands[1:])
    sizes = {**sums.attributes, **convolution.attributes}
    del sizes["rows"]
    return [InPlaceCall(targets.CONV_FORWARD_STATISTICS, operands, sizes, node.layer)]


def _conv_affine_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = at(scene, node, "y", "scale", "bias", "shortcut", "y")
    sizes = {
        **rows_of(scene, node, "y", "scale"),
        "type": type_of(scene, node, "x", "y", "shortcut"),
    }
    sizes["activation"] = activation_of(node)
    affine = InPlaceCall(targets.AFFINE_FORWARD, operands, sizes, node.layer)
    return [*_conv_forward(scene, node), affine]


def _convolutions(stem: str) -> dict[str, Lowering]:
    return {
        f"{stem}_forward": _conv_forward,
        f"{stem}_statistics_forward": _conv_statistics_forward,
        f"{stem}_affine_forward": _conv_affine_forward,
        f"{stem}_backward_data": _conv_backward_data,
        f"{stem}_backward_weight": _conv_backward_weight,
    }


LOWERINGS: dict[str, Lowering] = {
    **_convolutions("conv"),
    **_convolutions("depthwise_conv"),
    **_convolutions("group_conv"),
}
"""How every convolution becomes calls on banks."""
