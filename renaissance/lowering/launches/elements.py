"""Which CUDA kernels work element by element: activations, dropout, the residual add."""

from __future__ import annotations

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import WALK_BLOCKS, launch, pack_width
from renaissance.lowering.launches.planned import (
    THREADS,
    Attributes,
    Plan,
    PlannedLaunch,
    kernel,
    spread,
)
from renaissance.lowering.launches.tiles import ceil_div


def _lanes(a: Attributes) -> int:
    return 8 if a["type"] else 4


def _activation(name: str) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        found = kernel("activation.cu", name, half=a["type"], activation=a["activation"])
        return [PlannedLaunch(found, spread(a["count"], _lanes(a)), THREADS)]

    return plan


def _dropout_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    found = kernel("dropout.cu", "dropout_forward", half=a["type"])
    quads = a["rows"] * ceil_div(a["elements"], 4)
    return [PlannedLaunch(found, spread(quads), THREADS)]


def _dropout_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    found = kernel("dropout.cu", "dropout_backward", half=a["type"])
    return [PlannedLaunch(found, spread(a["count"]), THREADS)]


def _add(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = {"half": a["type"], "activation": a["activation"]}
    constants["z"] = int(call.operands[3] is not None)
    grid = spread(a["count"], 8 if a["type"] else 4, WALK_BLOCKS)
    return [launch("add.cu", "add_forward", grid, THREADS, **constants)]


def _channel_padding(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    width = pack_width(a["y_channels"], a["type"])
    constants = {"x_channels": a["x_channels"], "y_channels": a["y_channels"], "width": width}
    grid = spread(a["pixels"] * a["y_channels"] // width, 1, WALK_BLOCKS)
    constants["half"] = a["type"]
    return [launch("channel_padding.cu", "channel_padding", grid, THREADS, **constants)]


PLANS: dict[Target, Plan] = {
    targets.ACTIVATION_FORWARD: _activation("activation_forward"),
    targets.ACTIVATION_BACKWARD: _activation("activation_backward"),
    targets.DROPOUT_FORWARD: _dropout_forward,
    targets.DROPOUT_BACKWARD: _dropout_backward,
    targets.ADD_FORWARD: _add,
    targets.CHANNEL_PADDING: _channel_padding,
}
