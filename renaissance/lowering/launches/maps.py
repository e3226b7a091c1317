"""Which CUDA kernels the operations on maps launch; importing this adds them to the launch table.

Channels become constants of the kernel, and so do windows; images, heights and widths stay run-time
arguments, so that all variants share kernels.
"""

from __future__ import annotations

from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Convolution, Target
from renaissance.lowering.launches import depthwise as depthwise_launches
from renaissance.lowering.launches import depthwise_norm as depthwise_norm_launches
from renaissance.lowering.launches import pointwise as pointwise_launches
from renaissance.lowering.launches import pool as pool_launches
from renaissance.lowering.launches.depthwise_backward import depthwise_backward
from renaissance.lowering.launches.packs import (
    PIXELS_AHEAD,
    WALK_BLOCKS,
    launch,
    map_constants,
    pack_width,
    resident_grid,
    tile_of_map,
    walk_grid,
)
from renaissance.lowering.launches.pointwise_backward import POINTWISE_BACKWARD_PLANS
from renaissance.lowering.launches.pool import reads_ahead, sweep, window
from renaissance.lowering.launches.stem import is_stem, stem_forward, stem_weight
from renaissance.lowering.launches.table import (
    PLANS,
    THREADS,
    Plan,
    PlannedLaunch,
    spread,
)
from renaissance.lowering.launches.tiles import ceil_div

# -- batch norm -----------------------------------------------------------------------------------


def _statistics(call: InPlaceCall, **more: int) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = tile_of_map(a)
    constants = map_constants(a, tile=tile, ahead=8, **more)
    source = "batch_norm_statistics.cu"
    sums = (a["partial_rows"], tiles, 1)
    return [
        launch(source, "batch_norm_statistics", sums, THREADS, **constants),
        launch(source, "batch_norm_finalise", (ceil_div(a["c"], 32), 1, 1), 1024, **constants),
    ]


def _shortcut(call: InPlaceCall, shortcut: int, mean: int) -> int:
    if call.operands[mean] is not None:
        return 2
    return 0 if call.operands[shortcut] is None else 1


def _apply(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = map_constants(a, activation=a["activation"], shortcut=_shortcut(call, 5, 8))
    constants["z"] = int(call.operands[11] is not None)
    constants["mask"] = int(call.operands[12] is not None)
    constants["ahead"] = 3 if constants["shortcut"] else 4
    grid = resident_grid(a, a["rows"])
    return [launch("batch_norm_apply.cu", "batch_norm_apply", grid, THREADS, **constants)]


# Positions of operands of rn_batch_norm_backward (csrc/map_operations.h).
_GATE, _ARGMAX, _SHORTCUT_MEAN, _DX, _DSHORTCUT, _ADDEND, _MASK = 1, 2, 11, 13, 16, 20, 21


def _backward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Sums, their end, and the gradients made of them. With the attribute ``summed``, the call
    before has left the sums in ``partial``."""
    a = call.attributes
    tile, tiles = tile_of_map(a)
    if a["kernel"] and call.operands[_ARGMAX] is None:
        return _backward_of_tiles(call)
    pooled, shared = call.operands[_ARGMAX] is not None, 0
    constants = map_constants(a, tile=tile, activation=a["activation"], pooled=int(pooled))
    is_masked = call.operands[_MASK] is not None
    constants["gated"] = 2 if is_masked else int(call.operands[_GATE] is not None)
    constants["shortcut"] = _shortcut(call, _DSHORTCUT, _SHORTCUT_MEAN)
    constants["addend"] = int(call.operands[_ADDEND] is not None)
    constants["stash"] = stash_of(call)
    constants["ahead"] = PIXELS_AHEAD[constants["shortcut"]]
    if pooled:
        constants |= window(a, argmax_bytes=a["argmax_bytes"])
        strips, walk = sweep(a)
        steps_ahead, shared = reads_ahead(a)
        constants |= {**strips, "steps_ahead": steps_ahead}
    else:
        walk = resident_grid(a, a["rows"])
    source, stem = "batch_norm_backward.cu", "batch_norm_backward"
    finalise = (ceil_div(a["c"], 32), 1, 1)
    sums = launch(source, f"{stem}_sums", (a["partial_rows"], tiles, 1), THREADS, **constants)
    apply = launch(source, f"{stem}_apply", walk, THREADS, **constants)
    wanted = call.operands[_DX] is not None or call.operands[_DSHORTCUT] is not None
    return [
        *([] if a.get("summed") else [replace(sums, shared_bytes=shared)]),
        launch(source, f"{stem}_finalise", finalise, 1024, **constants),
        *([replace(apply, shared_bytes=shared)] if wanted else []),
    ]


def _backward_of_tiles(call: InPlaceCall) -> list[PlannedLaunch]:
    """Behind the norm a max-pool whose windows tile the map, and are searched again."""
    a = call.attributes
    tile, tiles = tile_of_map(a)
    constants = map_constants(a, tile=tile, activation=a["activation"])
    source, stem = "batch_norm_max_pool_backward.cu", "batch_norm_max_pool_backward"
    windows = a["n"] * ceil_div(a["h"], a["stride"]) * ceil_div(a["w"], a["stride"])
    searched = {**constants, **window(a, argmax_bytes=1, sweeps=0)}
    sums, grid = (a["partial_rows"], tiles, 1), walk_grid(a, windows)
    finalise = {"pooled": 0, "gated": 0, "shortcut": 0, "addend": 0, "stash": 0, **constants}
    ends = (ceil_div(a["c"], 32), 1, 1)
    return [
        launch(source, f"{stem}_sums", sums, THREADS, **searched),
        launch("batch_norm_backward.cu", "batch_norm_backward_finalise", ends, 1024, **finalise),
        launch(source, f"{stem}_apply", grid, THREADS, **searched),
    ]


def stash_of(call: InPlaceCall) -> int:
    """Where the first pass leaves dz for the second: 1 in dshortcut, 2 in dx, 0 nowhere.

    In dx it costs a write and saves reading dy, the addend and the gate; for fewer it does not pay.
    """
    given = [operand is not None for operand in call.operands]
    if _shortcut(call, _DSHORTCUT, _SHORTCUT_MEAN) == 1 and not given[_ARGMAX]:
        return 1
    is_sum_of_many = given[_ADDEND] and given[_GATE] and call.attributes["activation"]
    return 2 if is_sum_of_many and given[_DX] else 0


def _fold(call: InPlaceCall) -> list[PlannedLaunch]:
    grid = (ceil_div(call.attributes["c"], THREADS), 1, 1)
    return [launch("batch_norm_fold.cu", "batch_norm_fold", grid, THREADS)]


def _affine(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = map_constants(a, activation=a["activation"])
    constants["shortcut"] = int(call.operands[3] is not None)
    return [launch("affine.cu", "affine_forward", walk_grid(a, a["rows"]), THREADS, **constants)]


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


# -- convolutions ---------------------------------------------------------------------------------


_LIBRARY = {
    targets.CONV_FORWARD: "forward",
    targets.CONV_FORWARD_STATISTICS: "forward_statistics",
    targets.CONV_BACKWARD_DATA: "backward_data",
    targets.CONV_BACKWARD_WEIGHT: "backward_weight",
}
_CONVOLUTION_SIZES = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")


def convolution_of(call: InPlaceCall) -> Convolution | None:
    """The convolution that a library runs for this call; None where kernels of ours run it."""
    return None if call.target not in _LIBRARY or is_stem(call) else as_convolution(call)


def as_convolution(call: InPlaceCall) -> Convolution:
    """What a call for a dense or grouped convolution computes, whoever runs it."""
    kind, a = _LIBRARY[call.target], call.attributes
    sizes = tuple(int(a[name]) for name in _CONVOLUTION_SIZES)
    y_type = a["y_type"] if kind.startswith("forward") else a["type"]
    return Convolution(kind, a["type"], y_type, sizes, a["workspace_bytes"])


def launches_behind(call: InPlaceCall, *, summed: int) -> list[PlannedLaunch]:
    """The kernels that follow a convolution.

    Args:
        call: A dense or grouped convolution.
        summed: Rows of sums for the statistics that it left; 0 where it left none.
    """
    if call.target is not targets.CONV_FORWARD_STATISTICS:
        return []
    a = call.attributes
    rows = a["n"] * a["p"] * a["q"]
    output = {"rows": rows, "c": a["k"], "type": a["y_type"], "partial_rows": a["partial_rows"]}
    statistics = InPlaceCall(targets.BATCH_NORM_STATISTICS, (), output)
    if not summed:
        return _statistics(statistics)
    return _statistics(statistics, summed=1, pieces=summed)[1:]


def _convolution(call: InPlaceCall) -> list[PlannedLaunch]:
    """Kernels that run a convolution; or may be needed beside a library's, as the device shows."""
    if is_stem(call):
        return _stem(call)
    return [k for summed in (0, 1) for k in launches_behind(call, summed=summed)]


def _stem(call: InPlaceCall) -> list[PlannedLaunch]:
    if call.target == targets.CONV_BACKWARD_WEIGHT:
        return stem_weight(call)
    product = stem_forward(call)
    return [product, *launches_behind(call, summed=product.grid[0])]


MAP_PLANS: dict[Target, Plan] = {
    targets.POINTWISE_FORWARD: pointwise_launches.pointwise_forward,
    **dict.fromkeys(_LIBRARY, _convolution),
    targets.DEPTHWISE_CONV_FORWARD: depthwise_launches.depthwise_forward,
    targets.DEPTHWISE_CONV_BACKWARD_DATA: depthwise_launches.depthwise_data,
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: depthwise_launches.depthwise_weight,
    targets.DEPTHWISE_NORM_FORWARD: depthwise_norm_launches.depthwise_norm_forward,
    targets.DEPTHWISE_CONV_BACKWARD: depthwise_backward,
    targets.BATCH_NORM_STATISTICS: _statistics,
    targets.BATCH_NORM_APPLY: _apply,
    targets.BATCH_NORM_BACKWARD: _backward,
    targets.BATCH_NORM_FOLD: _fold,
    targets.AFFINE_FORWARD: _affine,
    targets.ADD_FORWARD: _add,
    targets.MAX_POOL_FORWARD: pool_launches.max_pool_forward,
    targets.MAX_POOL_BACKWARD: pool_launches.max_pool_backward,
    targets.AVERAGE_POOL_FORWARD: pool_launches.average_pool_forward,
    targets.AVERAGE_POOL_BACKWARD: pool_launches.average_pool_backward,
    targets.GLOBAL_AVERAGE_POOL_FORWARD: pool_launches.global_pool("forward", "y_type"),
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: pool_launches.global_pool("backward", "type"),
    targets.GAP_FC_BACKWARD_DATA: pool_launches.gap_fc_backward,
    targets.CHANNEL_PADDING: _channel_padding,
    **POINTWISE_BACKWARD_PLANS,
}
"""How every operation on maps is launched on CUDA."""

PLANS.update(MAP_PLANS)
