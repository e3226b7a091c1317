"""How kernels on maps are cut up: packs of channels, tiles of packs, grids.

A kernel walks packs of neighbouring channels of at most 16 bytes (``csrc/kernels/map.cuh``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from renaissance.lowering.launches.planned import THREADS, PlannedLaunch, kernel, spread
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

WALK_BLOCKS = MULTIPROCESSORS * 8
"""Blocks of an element-wise pass: all threads a device can hold."""
RESIDENT_BLOCKS = MULTIPROCESSORS * 2
"""Blocks of a norm's pass: all run at once (``kResident`` in ``map.cuh``), so that no second wave
of them begins, alone and from the first pixel again, when the first is through."""
PIXELS_AHEAD = (4, 3, 2)
"""Pixels that the backward of a norm fetches at once: of one without a shortcut, with one, with one
that was normalised."""
TILE_COLUMNS = 32
"""Packs side by side in a block of a reduction, at most."""


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


def map_constants(a: Any, **more: int) -> dict[str, int]:
    """Constants of every kernel on a map, and more."""
    return {"half": a["type"], "c": a["c"], "width": pack_width(a["c"], a["type"]), **more}


def walk_grid(a: Any, rows: int) -> tuple[int, int, int]:
    """A grid for an element-wise pass over so many pixels."""
    columns = a["c"] // pack_width(a["c"], a["type"])
    return spread(rows * columns, 1, WALK_BLOCKS)


def resident_grid(a: Any, rows: int) -> tuple[int, int, int]:
    """A grid for a norm's pass over so many pixels."""
    columns = a["c"] // pack_width(a["c"], a["type"])
    return spread(rows * columns, 1, RESIDENT_BLOCKS)


def tile_of_map(a: Any) -> tuple[int, int]:
    """:func:`tile_of` the packs of a map's pixel."""
    return tile_of(a["c"] // pack_width(a["c"], a["type"]))


def addend(a: Mapping[str, Any], given: bool) -> dict[str, int]:
    """Constants that say where a norm's backward finds the other reader's gradient.

    Args:
        a: The call's attributes; a stride without a window is the addend's
            (``csrc/map_operations.h``).
        given: Whether there is one.
    """
    if not given or a["kernel"] or not a["stride"]:
        return {"addend": int(given)}
    return {"addend": a["stride"], "addend_h": a["h"], "addend_w": a["w"]}


def launch(
    source: str, name: str, grid: tuple[int, int, int], threads: int, **constants: int
) -> PlannedLaunch:
    """A launch of a kernel with these constants."""
    return PlannedLaunch(kernel(source, name, **constants), grid, threads)


def strip_grid(columns: int, strips: int) -> tuple[int, int, int]:
    """A grid with a thread for every pack of a strip; blocks are handed out as others end."""
    return (ceil_div(strips * columns, THREADS), 1, 1)
