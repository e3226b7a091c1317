"""Which CUDA kernels fully connected layers launch."""

from __future__ import annotations

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.planned import Plan, PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import (
    FLOAT_THREADS,
    Tile,
    backward_tile,
    ceil_div,
    float_tile,
    forward_tile,
)


def fc_forward(call: InPlaceCall, tile: Tile | None = None) -> list[PlannedLaunch]:
    """Launch of ``rn_fc_forward``; a tile other than the chosen one only to measure it."""
    a = call.attributes
    sizes = {"half": a["type"], "y_half": a["y_type"], "c": a["c"], "k": a["k"]}
    sizes["activation"] = a["activation"]
    if a["type"]:
        tile = tile or forward_tile(a["n"], a["c"], a["k"])
        shared, threads = tile.shared_bytes(True, True), tile.threads
        sizes |= tile.constants
        rows, columns = tile.m, tile.n
    else:
        simple = float_tile(a["n"], a["k"])
        shared, threads = simple.shared_bytes, FLOAT_THREADS
        sizes |= simple.constants
        rows, columns = simple.m, simple.n
    found = kernel("fc_forward.cu", "fc_forward", **sizes, shared_bytes=shared)
    grid = (ceil_div(a["k"], columns), ceil_div(a["n"], rows), 1)
    return [PlannedLaunch(found, grid, threads, shared)]


def fc_backward(call: InPlaceCall, tile: Tile | None = None) -> list[PlannedLaunch]:
    """Launch of ``rn_fc_backward``; a tile other than the chosen one only to measure it."""
    a = call.attributes
    wants = {name: call.operands[i] is not None for name, i in (("dx", 4), ("dw", 5), ("dbias", 6))}
    gated = call.operands[3] is not None and wants["dx"]
    sizes = {"half": a["type"], "c": a["c"], "k": a["k"], **wants}
    sizes["activation"] = a["activation"] if gated else 0
    if a["type"]:
        tile = tile or backward_tile(a["n"], a["c"], a["k"], data=wants["dx"])
        shared = max(tile.shared_bytes(True, False), tile.shared_bytes(False, False))
        rows, columns, threads = tile.m, tile.n, tile.threads
        sizes |= tile.constants
    else:
        simple = float_tile(a["k"] + (a["n"] if wants["dx"] else 0), a["c"])
        rows, columns, threads, shared = simple.m, simple.n, FLOAT_THREADS, simple.shared_bytes
        sizes |= simple.constants
    across = ceil_div(a["c"], columns)
    blocks = across * ceil_div(a["n"], rows) * wants["dx"]
    blocks += across * ceil_div(a["k"], rows) * wants["dw"]
    blocks += ceil_div(a["k"], 32) * wants["dbias"]
    found = kernel("fc_backward.cu", "fc_backward", **sizes, shared_bytes=shared)
    return [PlannedLaunch(found, (blocks, 1, 1), threads, shared)]


PLANS: dict[Target, Plan] = {targets.FC_FORWARD: fc_forward, targets.FC_BACKWARD: fc_backward}
