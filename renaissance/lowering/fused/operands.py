"""What every lowering of an operation reads off its node: places, shapes and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from renaissance.core.errors import PlanError, fail
from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.graph.memory_plan import DTensor
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS, TYPE_NUMBERS
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.scene import Scene

Calls = list[InPlaceCall]
Lowering = Callable[[Scene, Any], Calls]
Places = tuple[Location | None, ...]

NORM = ("gamma", "beta", "mean", "inverse_std")
"""Roles of a norm, in the order of every record that applies one."""


def at(scene: Scene, node: ComputeNode, *roles: str) -> Places:
    """The places of the operands in these roles; None for one that the node lacks."""
    return tuple(scene.at(node, role) for role in roles)


def map_of(scene: Scene, node: ComputeNode, role: str) -> DTensor:
    """The planned map in a role.

    Raises:
        PlanError: it is not (N, H, W, C).
    """
    tensor = scene.tensor(node, role)
    if len(tensor.shape) != 4:
        fail(PlanError, f"shape of {tensor.name}", tensor.shape, "(N, H, W, C)")
    return tensor


def planned_type(tensor: DTensor) -> int:
    """The number of a tensor's element type.

    Raises:
        PlanError: kernels compute in no such type.
    """
    if tensor.dtype not in TYPE_NUMBERS:
        expected = "float32 or float16: the kernels compute in no other type"
        fail(PlanError, f"type of {tensor.name}", tensor.dtype.value, expected)
    return TYPE_NUMBERS[tensor.dtype]


def type_of(scene: Scene, node: ComputeNode, *roles: str) -> int:
    """The number of the element type that all these operands share.

    Raises:
        PlanError: names the tensor of another type.
    """
    tensors = [scene.tensor(node, role) for role in roles if scene.at(node, role) is not None]
    first = tensors[0]
    if first.dtype not in TYPE_NUMBERS:
        fail(PlanError, f"type of {first.name}", first.dtype.value, "float32 or float16")
    for tensor in tensors[1:]:
        if tensor.dtype is not first.dtype:
            what = f"type of {tensor.name} in {node.op} of {node.layer}"
            fail(PlanError, what, tensor.dtype.value, f"{first.dtype.value}, as {first.name} has")
    return TYPE_NUMBERS[first.dtype]


def activation_of(node: ComputeNode) -> int:
    """The number of a node's activation."""
    return ACTIVATION_NUMBERS[node.params.get("activation")]


def rows_of(scene: Scene, node: ComputeNode, x: str, constant: str) -> dict[str, int]:
    """Rows and channels as the norm counts them: behind a flatten its x still has a map's shape."""
    channels = scene.tensor(node, constant).size
    return {"rows": scene.tensor(node, x).size // channels, "c": channels}
