"""Which CUDA kernels the operations on maps launch; importing this adds them to the launch table.

Channels become constants of the kernel, and so do windows; images, heights and widths stay run-time
arguments, so that all variants share kernels. A kernel walks packs of neighbouring channels of at
most 16 bytes (``csrc/kernels/map.cuh``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from renaissance.lowering.tiles import (
    FLOAT_THREADS,
    LARGE,
    MULTIPROCESSORS,
    FloatTile,
    ceil_div,
)

WALK_BLOCKS = MULTIPROCESSORS * 8
"""Blocks of an element-wise pass: all threads a device can hold."""
TILE_COLUMNS = 32
"""Packs side by side in a block of a reduction, at most."""
WIDEST_SWEEP = 3
"""Windows up to so wide, a pool's backward pass keeps the outputs of a tile in registers."""
SWEEP_STEPS = 10
"""Steps of a strip of a pool's backward pass."""
KEY_STEPS = 14
"""Steps of a strip of a max-pool, at most."""
FILTER_FLOATS = 72
"""Filters, or their gradients, that a thread of a depthwise convolution keeps in registers."""
STRIP_STEPS = 29
"""Steps of a strip of a depthwise convolution, at most: each strip reads a window's rows first."""


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
        sweep, walk = _sweep(a)
        constants |= sweep
    else:
        walk = _walk(a, a["rows"])
    source, stem = "batch_norm_backward.cu", "batch_norm_backward"
    finalise = (ceil_div(a["c"], 32), 1, 1)
    return [
        _launch(source, f"{stem}_sums", (a["partial_rows"], tiles, 1), THREADS, **constants),
        _launch(source, f"{stem}_finalise", finalise, 1024, **constants),
        _launch(source, f"{stem}_apply", walk, THREADS, **constants),
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
    if (
        a["type"]
        and constants["width"] > 1
        and a["kernel"] <= WIDEST_SWEEP
        and a["argmax_bytes"] < 4
    ):
        constants["rows"] = KEY_STEPS
        strips = a["n"] * ceil_div(a["p"], KEY_STEPS) * a["q"]
        grid = _strips(a["c"] // constants["width"], strips)
        return [_launch("max_pool_keys.cu", "max_pool_keys", grid, THREADS, **constants)]
    constants["sweeps"] = 0
    grid = _walk(a, a["n"] * a["p"] * a["q"])
    return [_launch("max_pool.cu", "max_pool_forward", grid, THREADS, **constants)]


def _sweep(a: Any) -> tuple[dict[str, int], tuple[int, int, int]]:
    """Constants and grid of a pool's backward pass: by strips of tiles, or pixel by pixel."""
    if a["kernel"] > WIDEST_SWEEP or a["stride"] > WIDEST_SWEEP:
        return {"sweeps": 0}, _walk(a, a["n"] * a["h"] * a["w"])
    down, across = (ceil_div(a[extent] + a["pad"], a["stride"]) for extent in ("h", "w"))
    strips = a["n"] * ceil_div(down, SWEEP_STEPS) * across
    return {"sweeps": 1, "rows": SWEEP_STEPS}, _strips(
        a["c"] // pack_width(a["c"], a["type"]), strips
    )


def _strips(columns: int, strips: int) -> tuple[int, int, int]:
    """A grid with a thread for every pack of a strip; blocks are handed out as others end."""
    return (ceil_div(strips * columns, THREADS), 1, 1)


def _max_pool_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    constants = {**_map(a), **_window(a, argmax_bytes=a["argmax_bytes"])}
    sweep, grid = _sweep(a)
    constants |= {"norm": 0, "activation": 0, **sweep}
    return [_launch("max_pool.cu", "max_pool_backward", grid, THREADS, **constants)]


def _average_pool_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    grid = _walk(a, a["n"] * a["p"] * a["q"])
    constants = {**_map(a), **_window(a, sweeps=0)}
    return [_launch("average_pool.cu", "average_pool_forward", grid, THREADS, **constants)]


def _average_pool_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    sweep, grid = _sweep(a)
    constants = {**_map(a), **_window(a), **sweep}
    return [_launch("average_pool.cu", "average_pool_backward", grid, THREADS, **constants)]


def _global_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = _tile(a)
    constants = _map(a, tile=tile, y_half=a["y_type"])
    stem = "global_average_pool"
    return [_launch(f"{stem}.cu", f"{stem}_forward", (a["n"], tiles, 1), THREADS, **constants)]


def _global_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile, tiles = _tile(a)
    constants = _map(a, tile=tile, y_half=a["type"])
    stem = "global_average_pool"
    return [_launch(f"{stem}.cu", f"{stem}_backward", (a["n"], tiles, 1), THREADS, **constants)]


def _gap_fc_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    tile = LARGE if a["type"] else FloatTile(32, 64)
    threads = LARGE.threads if a["type"] else FLOAT_THREADS
    needed = LARGE.shared_bytes(True, False) if a["type"] else FloatTile(32, 64).shared_bytes
    item = 2 if a["type"] else 4
    shared = max(needed, tile.m * (tile.n * item + 16))
    constants = {**_map(a), "k": a["k"], **tile.constants, "shared_bytes": shared}
    found = kernel("gap_fc_backward.cu", "gap_fc_backward_data", **constants)
    grid = (ceil_div(a["n"], tile.m), ceil_div(a["c"], tile.n), 1)
    return [PlannedLaunch(found, grid, threads, shared)]


def _channel_padding(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    width = pack_width(a["y_channels"], a["type"])
    constants = {"x_channels": a["x_channels"], "y_channels": a["y_channels"], "width": width}
    grid = spread(a["pixels"] * a["y_channels"] // width, 1, WALK_BLOCKS)
    constants["half"] = a["type"]
    return [_launch("channel_padding.cu", "channel_padding", grid, THREADS, **constants)]


# -- convolutions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DepthwiseShape:
    """How a depthwise kernel is cut up; measured in ``benchmarks/notes_memory_kernels.md``.

    Attributes:
        width: Channels of a thread, at most.
        across: Output pixels of a thread along a row; of a data gradient, times the stride.
        ahead: Steps that rows are read before their use.
        unroll: Steps of the loop that are written out.
        blocks: Blocks that must fit on a multiprocessor, which bounds the registers.
    """

    width: int = 4
    across: int = 1
    ahead: int = 1
    unroll: int = 1
    blocks: int = 2


DEPTHWISE = {
    ("forward", 1): DepthwiseShape(across=2),
    ("data", 1): DepthwiseShape(across=2),
    ("data", 2): DepthwiseShape(across=2),
}
"""By kind and stride; what is not here has a plain :class:`DepthwiseShape`."""


def _depthwise(a: Any, kind: str) -> dict[str, int]:
    """Constants of a depthwise kernel."""
    shape = DEPTHWISE.get((kind, a["stride"]), DepthwiseShape())
    fits = max(w for w in (8, 4, 2, 1) if w * a["r"] * a["s"] <= FILTER_FLOATS or w == 1)
    width = pack_width(a["c"], a["type"], min(fits, shape.width))
    constants = {"half": a["type"], "c": a["c"], "width": width, "rows": STRIP_STEPS}
    constants |= {name: a[name] for name in ("r", "s", "stride", "pad")}
    constants |= {name: getattr(shape, name) for name in ("ahead", "unroll", "blocks")}
    return constants | {"across": shape.across * (a["stride"] if kind == "data" else 1)}


def _depthwise_pass(name: str, kind: str, steps: Callable[[Any], int], along: str) -> Plan:
    """Plan of the forward pass or the data gradient: a thread to a pack of a strip."""

    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        constants = _depthwise(a, kind) | {"data": int(kind == "data")}
        down = ceil_div(steps(a), constants["rows"])
        strips = a["n"] * down * ceil_div(a[along], constants["across"])
        grid = _strips(a["c"] // constants["width"], strips)
        return [_launch("depthwise_conv.cu", name, grid, THREADS, **constants)]

    return plan


_depthwise_forward = _depthwise_pass("depthwise_conv_forward", "forward", lambda a: a["p"], "q")
_depthwise_data = _depthwise_pass(
    "depthwise_conv_backward_data",
    "data",
    lambda a: ceil_div(a["h"] + a["pad"], a["stride"]),
    "w",
)


def _depthwise_weight(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    taps = a["r"] * a["s"]
    constants = _depthwise(a, "weight")
    constants["tile"], tiles = tile_of(a["c"] // constants["width"])
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
    targets.DEPTHWISE_CONV_FORWARD: _depthwise_forward,
    targets.DEPTHWISE_CONV_BACKWARD_DATA: _depthwise_data,
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: _depthwise_weight,
    targets.BATCH_NORM_STATISTICS: _statistics,
    targets.BATCH_NORM_APPLY: _apply,
    targets.BATCH_NORM_BACKWARD: _backward,
    targets.BATCH_NORM_FOLD: _fold,
    targets.AFFINE_FORWARD: _affine,
    targets.ADD_FORWARD: _add,
    targets.MAX_POOL_FORWARD: _max_pool_forward,
    targets.MAX_POOL_BACKWARD: _max_pool_backward,
    targets.AVERAGE_POOL_FORWARD: _average_pool_forward,
    targets.AVERAGE_POOL_BACKWARD: _average_pool_backward,
    targets.GLOBAL_AVERAGE_POOL_FORWARD: _global_forward,
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: _global_backward,
    targets.GAP_FC_BACKWARD_DATA: _gap_fc_backward,
    targets.CHANNEL_PADDING: _channel_padding,
}
"""How every operation on maps is launched on CUDA."""

PLANS.update(MAP_PLANS)
