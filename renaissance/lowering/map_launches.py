"""Which CUDA kernels the operations on maps launch; importing this adds them to the launch table.

Channels become constants of the kernel, and so do windows; images, heights and widths stay run-time
arguments, so that all variants share kernels. A kernel walks packs of neighbouring channels of at
most 16 bytes (``csrc/kernels/map.cuh``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from renaissance.lowering import targets
from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import (
    PLANS,
    THREADS,
    Plan,
    PlannedLaunch,
    kernel,
    spread,
)
from renaissance.lowering.targets import Convolution, Target
from renaissance.lowering.tiles import MULTIPROCESSORS, ceil_div

WALK_BLOCKS = MULTIPROCESSORS * 8
"""Blocks of an element-wise pass: all threads a device can hold."""
TILE_COLUMNS = 32
"""Packs side by side in a block of a reduction, at most."""
FILTER_BYTES = 40_000
"""Shared memory that a block of a depthwise convolution gives to filters, at most."""
WEIGHT_SUMS = 36
"""Sums a thread of a depthwise weight gradient keeps in registers, at most."""


def pack_width(channels: int, half: int, most: int = 8) -> int:
    """Channels of a pack: a power of two that divides them all, at most 16 bytes.

    Args:
        channels: Channels of the map.
        half: 1 for fp16, 0 for fp32.
        most: A lower bound on registers may ask for less.
    """
    width = min(most, 8 if half else 4)
    while channels % width or width & (width - 1):
        width -= 1
    return width


def tile_of(columns: int, most: int = TILE_COLUMNS) -> tuple[int, int]:
    """Packs side by side in a block, and how many such tiles there are."""
    tiles = ceil_div(columns, most)
    tile = ceil_div(columns, tiles)
    return tile, ceil_div(columns, tile)


def _map(a: Any, **more: int) -> dict[str, int]:
    return {"half": a["type"], "c": a["c"], "width": pack_width(a["c"], a["type"]), **more}


def _walk(a: Any, rows: int) -> tuple[int, int, int]:
    columns = a["c"] // pack_width(a["c"], a["type"])
    return spread(rows * columns, 1, WALK_BLOCKS)


def _tile(a: Any) -> tuple[int, int]:
    return tile_of(a["c"] // pack_width(a["c"], a["type"]))


def _launch(
    source: str, name: str, grid: tuple[int, int, int], threads: int, **constants: int
) -> PlannedLaunch:
    return PlannedLaunch(kernel(source, name, **constants), grid, threads)


# -- batch norm -----------------------------------------------------------------------------------


def _statistics(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = _tile(a)
    constants = _map(a, tile=tile)
    source = "batch_norm_statistics.cu"
    sums = (a["partial_rows"], tiles, 1)
    return [
        _launch(source, "batch_norm_statistics", sums, THREADS, **constants),
        _launch(source, "batch_norm_finalise", (ceil_div(a["c"], 32), 1, 1), 1024, **constants),
    ]


def _shortcut(call: InPlaceCall, shortcut: int, mean: int) -> int:
    if call.operands[mean] is not None:
        return 2
    return 0 if call.operands[shortcut] is None else 1


def _apply(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = _map(a, activation=a["activation"], shortcut=_shortcut(call, 5, 8))
    constants["z"] = int(call.operands[11] is not None)
    grid = _walk(a, a["rows"])
    return [_launch("batch_norm_apply.cu", "batch_norm_apply", grid, THREADS, **constants)]


# Positions of operands of rn_batch_norm_backward (csrc/map_operations.h).
_GATE, _ARGMAX, _SHORTCUT_MEAN, _DX, _DSHORTCUT, _ADDEND = 1, 2, 11, 13, 16, 20


def _backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = _tile(a)
    pooled = call.operands[_ARGMAX] is not None
    constants = _map(a, tile=tile, activation=a["activation"], pooled=int(pooled))
    constants["gated"] = int(call.operands[_GATE] is not None)
    constants["shortcut"] = _shortcut(call, _DSHORTCUT, _SHORTCUT_MEAN)
    constants["addend"] = int(call.operands[_ADDEND] is not None)
    constants["stash"] = _stash(call, constants)
    if pooled:
        constants |= _window(a, argmax_bytes=a["argmax_bytes"])
    source, stem = "batch_norm_backward.cu", "batch_norm_backward"
    finalise = (ceil_div(a["c"], 32), 1, 1)
    return [
        _launch(source, f"{stem}_sums", (a["partial_rows"], tiles, 1), THREADS, **constants),
        _launch(source, f"{stem}_finalise", finalise, 1024, **constants),
        _launch(source, f"{stem}_apply", _walk(a, a["rows"]), THREADS, **constants),
    ]


def _stash(call: InPlaceCall, constants: Mapping[str, int]) -> int:
    """Where the first pass leaves dz for the second: 1 in dshortcut, 2 in dx, 0 nowhere.

    In dx it costs a write and saves reading dy, the addend and the gate; for fewer it does not pay.
    """
    if constants["shortcut"] == 1 and not constants["pooled"]:
        return 1
    is_sum_of_many = constants["addend"] and constants["gated"] and constants["activation"]
    return 2 if is_sum_of_many and call.operands[_DX] is not None else 0


def _fold(call: InPlaceCall) -> list[PlannedLaunch]:
    grid = (ceil_div(call.attributes["c"], THREADS), 1, 1)
    return [_launch("batch_norm_fold.cu", "batch_norm_fold", grid, THREADS)]


def _affine(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = _map(a, activation=a["activation"])
    constants["shortcut"] = int(call.operands[3] is not None)
    return [_launch("affine.cu", "affine_forward", _walk(a, a["rows"]), THREADS, **constants)]


def _add(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = {"half": a["type"], "activation": a["activation"]}
    constants["z"] = int(call.operands[3] is not None)
    grid = spread(a["count"], 8 if a["type"] else 4, WALK_BLOCKS)
    return [_launch("add.cu", "add_forward", grid, THREADS, **constants)]


# -- pools ----------------------------------------------------------------------------------------


def _window(a: Any, **more: int) -> dict[str, int]:
    return {"window": a["kernel"], "stride": a["stride"], "pad": a["pad"], **more}


def _max_pool_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = {**_map(a), **_window(a, argmax_bytes=a["argmax_bytes"])}
    constants["norm"] = int(call.operands[3] is not None)
    constants["activation"] = a["activation"]
    grid = _walk(a, a["n"] * a["p"] * a["q"])
    return [_launch("max_pool.cu", "max_pool_forward", grid, THREADS, **constants)]


def _max_pool_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = {**_map(a), **_window(a, argmax_bytes=a["argmax_bytes"])}
    constants |= {"norm": 0, "activation": 0}
    grid = _walk(a, a["n"] * a["h"] * a["w"])
    return [_launch("max_pool.cu", "max_pool_backward", grid, THREADS, **constants)]


def _average_pool(name: str, height: str, width: str) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        grid = _walk(a, a["n"] * a[height] * a[width])
        return [_launch("average_pool.cu", name, grid, THREADS, **_map(a), **_window(a))]

    return plan


def _global_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = _tile(a)
    constants = _map(a, tile=tile, y_half=a["y_type"])
    stem = "global_average_pool"
    return [_launch(f"{stem}.cu", f"{stem}_forward", (a["n"], tiles, 1), THREADS, **constants)]


def _global_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = _map(a, tile=_tile(a)[0], y_half=a["type"])
    grid = _walk(a, a["n"] * a["pixels"])
    stem = "global_average_pool"
    return [_launch(f"{stem}.cu", f"{stem}_backward", grid, THREADS, **constants)]


def _gap_fc_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    grid = (ceil_div(a["n"], 8), ceil_div(a["c"], THREADS), 1)
    constants = {"half": a["type"], "c": a["c"], "k": a["k"]}
    return [_launch("gap_fc_backward.cu", "gap_fc_backward_data", grid, THREADS, **constants)]


def _channel_padding(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    width = pack_width(a["y_channels"], a["type"])
    constants = {"x_channels": a["x_channels"], "y_channels": a["y_channels"], "width": width}
    grid = spread(a["pixels"] * a["y_channels"] // width, 1, WALK_BLOCKS)
    constants["half"] = a["type"]
    return [_launch("channel_padding.cu", "channel_padding", grid, THREADS, **constants)]


# -- convolutions ---------------------------------------------------------------------------------


def _depthwise(a: Any, most: int = 8) -> tuple[dict[str, int], int]:
    """Constants of a depthwise kernel, and its tiles of channels."""
    width = pack_width(a["c"], a["type"], most)
    taps = a["r"] * a["s"]
    columns = max(1, min(TILE_COLUMNS, FILTER_BYTES // (4 * taps * width)))
    tile, tiles = tile_of(a["c"] // width, columns)
    constants = {"half": a["type"], "c": a["c"], "width": width, "tile": tile}
    window = {name: a[name] for name in ("r", "s", "stride", "pad")}
    return {**constants, **window}, tiles


def _patches(name: str, height: str, width: str) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        constants, tiles = _depthwise(a)
        stride = a["stride"]
        # Outputs of a strided forward pass share little input; a smaller patch saves registers.
        is_data = name.endswith("data")
        rows, columns = (1, 2) if stride > 1 and not is_data else (max(2, stride),) * 2
        patches = a["n"] * ceil_div(a[height], rows) * ceil_div(a[width], columns)
        blocks = ceil_div(patches, THREADS // constants["tile"])
        grid = (min(blocks, max(1, WALK_BLOCKS // tiles)), tiles, 1)
        constants |= {"tile_p": rows, "tile_q": columns, "data": int(is_data)}
        return [_launch("depthwise_conv.cu", name, grid, THREADS, **constants)]

    return plan


def _depthwise_weight(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    taps = a["r"] * a["s"]
    most = max(width for width in (8, 4, 2, 1) if width * taps <= WEIGHT_SUMS or width == 1)
    constants, tiles = _depthwise(a, most)
    source, pieces = "depthwise_conv_weight.cu", a["partial_rows"]
    grid = (pieces, tiles, 1)
    first = _launch(source, "depthwise_conv_backward_weight", grid, THREADS, **constants)
    if pieces == 1:
        return [first]
    sums = (ceil_div(taps * a["c"], 32), 1, 1)
    return [first, _launch(source, "depthwise_conv_sum", sums, 1024, **constants)]


_LIBRARY = {
    targets.CONV_FORWARD: "forward",
    targets.CONV_BACKWARD_DATA: "backward_data",
    targets.CONV_BACKWARD_WEIGHT: "backward_weight",
}
_CONVOLUTION_SIZES = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")


def convolution_of(call: InPlaceCall) -> Convolution | None:
    """The convolution that a library runs for this call; None where kernels of ours run it."""
    kind = _LIBRARY.get(call.target)
    if kind is None:
        return None
    a = call.attributes
    sizes = tuple(int(a[name]) for name in _CONVOLUTION_SIZES)
    y_type = a["y_type"] if kind.startswith("forward") else a["type"]
    return Convolution(kind, a["type"], y_type, sizes, a["workspace_bytes"])


def _by_library(call: InPlaceCall) -> list[PlannedLaunch]:
    """Dense and grouped convolutions launch no kernel of ours."""
    return []


MAP_PLANS: dict[Target, Plan] = {
    **dict.fromkeys(_LIBRARY, _by_library),
    targets.DEPTHWISE_CONV_FORWARD: _patches("depthwise_conv_forward", "p", "q"),
    targets.DEPTHWISE_CONV_BACKWARD_DATA: _patches("depthwise_conv_backward_data", "h", "w"),
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: _depthwise_weight,
    targets.BATCH_NORM_STATISTICS: _statistics,
    targets.BATCH_NORM_APPLY: _apply,
    targets.BATCH_NORM_BACKWARD: _backward,
    targets.BATCH_NORM_FOLD: _fold,
    targets.AFFINE_FORWARD: _affine,
    targets.ADD_FORWARD: _add,
    targets.MAX_POOL_FORWARD: _max_pool_forward,
    targets.MAX_POOL_BACKWARD: _max_pool_backward,
    targets.AVERAGE_POOL_FORWARD: _average_pool("average_pool_forward", "p", "q"),
    targets.AVERAGE_POOL_BACKWARD: _average_pool("average_pool_backward", "h", "w"),
    targets.GLOBAL_AVERAGE_POOL_FORWARD: _global_forward,
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: _global_backward,
    targets.GAP_FC_BACKWARD_DATA: _gap_fc_backward,
    targets.CHANNEL_PADDING: _channel_padding,
}
"""How every operation on maps is launched on CUDA."""

PLANS.update(MAP_PLANS)
