"""Which CUDA kernels batch norms launch, and the affine maps they become.

Channels become constants of the kernel, and so do windows; images, heights and widths stay run-time
arguments, so that all variants share kernels.
"""

from __future__ import annotations

from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import (
    PIXELS_AHEAD,
    addend,
    launch,
    map_constants,
    resident_grid,
    tile_of_map,
    walk_grid,
)
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch
from renaissance.lowering.launches.pool import reads_ahead, sweep, window
from renaissance.lowering.launches.tiles import ceil_div


def statistics(call: InPlaceCall, **more: int) -> list[PlannedLaunch]:
    """Launches of ``rn_batch_norm_statistics``: the sums, and what they come to."""
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
    constants |= addend(a, call.operands[_ADDEND] is not None)
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


PLANS: dict[Target, Plan] = {
    targets.BATCH_NORM_STATISTICS: statistics,
    targets.BATCH_NORM_APPLY: _apply,
    targets.BATCH_NORM_BACKWARD: _backward,
    targets.BATCH_NORM_FOLD: _fold,
    targets.AFFINE_FORWARD: _affine,
}
