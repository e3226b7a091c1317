"""Which CUDA kernels pools launch, and the gradient of a fully connected layer behind one."""

from __future__ import annotations

from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import (
    launch,
    map_constants,
    pack_width,
    strip_grid,
    tile_of_map,
    walk_grid,
)
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import FLOAT_THREADS, LARGE, FloatTile, ceil_div

WIDEST_SWEEP = 3
"""Windows up to so wide, a pool's passes keep the outputs of a tile in registers."""
SWEEP_STEPS = 10
"""Steps of a strip of a pool's backward pass, at most."""
STEPS_AHEAD = 2
"""Steps of such a strip whose maps are on their way, where copies can be asynchronous."""
KEY_STEPS = 14
"""Steps of a strip of a max-pool, at most."""


def window(a: Any, **more: int) -> dict[str, int]:
    """Constants of a window, and more."""
    return {"window": a["kernel"], "stride": a["stride"], "pad": a["pad"], **more}


def max_pool_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_max_pool_forward``: by keys where values and places fit into them."""
    a = call.attributes
    constants = {**map_constants(a), **window(a, argmax_bytes=a["argmax_bytes"])}
    constants["norm"] = int(call.operands[3] is not None)
    constants["activation"] = a["activation"]
    has_pairs = a["type"] and constants["width"] > 1
    if has_pairs and a["kernel"] <= WIDEST_SWEEP and a["argmax_bytes"] < 4:
        constants["rows"] = KEY_STEPS
        strips = a["n"] * ceil_div(a["p"], KEY_STEPS) * a["q"]
        grid = strip_grid(a["c"] // constants["width"], strips)
        return [launch("max_pool_keys.cu", "max_pool_keys", grid, THREADS, **constants)]
    constants["sweeps"] = 0
    grid = walk_grid(a, a["n"] * a["p"] * a["q"])
    return [launch("max_pool.cu", "max_pool_forward", grid, THREADS, **constants)]


def sweep(a: Any) -> tuple[dict[str, int], tuple[int, int, int]]:
    """Constants and grid of a pool's backward pass: by strips of tiles, or pixel by pixel."""
    if a["kernel"] > WIDEST_SWEEP or a["stride"] > WIDEST_SWEEP:
        return {"sweeps": 0}, walk_grid(a, a["n"] * a["h"] * a["w"])
    down, across = (ceil_div(a[extent] + a["pad"], a["stride"]) for extent in ("h", "w"))
    strips = a["n"] * ceil_div(down, SWEEP_STEPS) * across
    columns = a["c"] // pack_width(a["c"], a["type"])
    return {"sweeps": 1, "rows": SWEEP_STEPS}, strip_grid(columns, strips)


def reads_ahead(a: Any) -> tuple[int, int]:
    """How many steps ahead a norm's backward behind a max-pool reads, and its shared memory.

    Asynchronous copies move 4, 8 or 16 bytes: so long have packs of channels and of their winners
    to be (``csrc/kernels/window_ahead.cuh``).
    """
    if a["kernel"] > WIDEST_SWEEP or a["stride"] > WIDEST_SWEEP:
        return 0, 0
    width, seen = pack_width(a["c"], a["type"]), ceil_div(a["kernel"], a["stride"])
    pack, winners = width * (2 if a["type"] else 4), width * a["argmax_bytes"]
    if not {pack, winners} <= {4, 8, 16}:
        return 0, 0
    step = THREADS * (a["stride"] ** 2 * pack + seen * (pack + winners))
    return STEPS_AHEAD, (STEPS_AHEAD + 1) * step


def max_pool_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_max_pool_backward``."""
    a = call.attributes
    constants = {**map_constants(a), **window(a, argmax_bytes=a["argmax_bytes"])}
    strips, grid = sweep(a)
    constants |= {"norm": 0, "activation": 0, **strips}
    return [launch("max_pool.cu", "max_pool_backward", grid, THREADS, **constants)]


def average_pool_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_average_pool_forward``."""
    a = call.attributes
    grid = walk_grid(a, a["n"] * a["p"] * a["q"])
    constants = {**map_constants(a), **window(a, sweeps=0)}
    return [launch("average_pool.cu", "average_pool_forward", grid, THREADS, **constants)]


def average_pool_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_average_pool_backward``."""
    a = call.attributes
    strips, grid = sweep(a)
    constants = {**map_constants(a), **window(a), **strips}
    return [launch("average_pool.cu", "average_pool_backward", grid, THREADS, **constants)]


def global_pool(direction: str, y_type: str) -> Plan:
    """Launch of a global average pool.

    Args:
        direction: ``"forward"`` or ``"backward"``.
        y_type: The attribute that tells the type of the pooled side.
    """

    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        tile, tiles = tile_of_map(a)
        constants = map_constants(a, tile=tile, y_half=a[y_type])
        stem, grid = "global_average_pool", (a["n"], tiles, 1)
        return [launch(f"{stem}.cu", f"{stem}_{direction}", grid, THREADS, **constants)]

    return plan


def gap_fc_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_gap_fc_backward_data``."""
    a = call.attributes
    tile = LARGE if a["type"] else FloatTile(32, 64)
    threads = LARGE.threads if a["type"] else FLOAT_THREADS
    needed = LARGE.shared_bytes(True, False) if a["type"] else FloatTile(32, 64).shared_bytes
    item = 2 if a["type"] else 4
    shared = max(needed, tile.m * (tile.n * item + 16))
    constants = {**map_constants(a), "k": a["k"], **tile.constants, "shared_bytes": shared}
    found = kernel("gap_fc_backward.cu", "gap_fc_backward_data", **constants)
    grid = (ceil_div(a["n"], tile.m), ceil_div(a["c"], tile.n), 1)
    return [PlannedLaunch(found, grid, threads, shared)]


PLANS: dict[Target, Plan] = {
    targets.MAX_POOL_FORWARD: max_pool_forward,
    targets.MAX_POOL_BACKWARD: max_pool_backward,
    targets.AVERAGE_POOL_FORWARD: average_pool_forward,
    targets.AVERAGE_POOL_BACKWARD: average_pool_backward,
    targets.GLOBAL_AVERAGE_POOL_FORWARD: global_pool("forward", "y_type"),
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: global_pool("backward", "type"),
    targets.GAP_FC_BACKWARD_DATA: gap_fc_backward,
}
