"""How a depthwise convolution is launched that normalises what it reads and sums what it writes.

The kernel's threads walk down strips of the output (``csrc/kernels/depthwise_norm.cu``); a block
takes as many strips as fit beside each other, then a further group of them, and leaves one row of
partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import THREADS, PlannedLaunch
from renaissance.lowering.packs import launch, map_constants, pack_width, tile_of
from renaissance.lowering.tiles import MULTIPROCESSORS, ceil_div

# Positions of operands in the operation's record (csrc/ffi/decode_depthwise.h).
X, GAMMA, ACTIVATED, W, Y, PARTIAL = 0, 1, 5, 6, 7, 14
SUMS_OF_Y = 2
"""Partial sums of values themselves, for the kernel that finishes them (``RN_SUMMED``)."""


@dataclass(frozen=True, slots=True)
class StripShape:
    """How the kernel is cut up.

    Attributes:
        width: Channels of a thread; even.
        across: Output pixels of a thread along a row.
        blocks: Blocks that must fit on a multiprocessor, which bounds the registers.
    """

    width: int = 2
    across: int = 7
    blocks: int = 2


STRIPS = {1: StripShape(), 2: StripShape()}
"""By stride; measured in ``benchmarks/notes_depthwise.md``."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How an output is shared out among blocks.

    Attributes:
        rows: Rows of a strip, at most.
        pieces: Blocks that share the strips of a tile of channels, and rows of partial sums.
    """

    rows: int
    pieces: int

    @property
    def attributes(self) -> dict[str, int]:
        """As attributes of the call."""
        return {"strip_rows": self.rows, "partial_rows": self.pieces}


def cut_of(a: Any, most: int) -> Cut:
    """The cut in which the device is done soonest, if all rows take equally long.

    Strips that are shorter fill it more evenly, and read more rows twice.

    Args:
        a: The attributes n, p, q, c and stride of the convolution.
        most: Rows of partial sums there is room for.
    """
    shape, best = STRIPS[a["stride"]], (0, Cut(0, 0))
    tile, tiles = tile_of(a["c"] // _width(a))
    for segments in range(1, a["p"] + 1):
        rows = ceil_div(a["p"], segments)
        strips = a["n"] * ceil_div(a["p"], rows) * ceil_div(a["q"], shape.across)
        groups = ceil_div(strips, THREADS // tile)
        turns = ceil_div(groups, most)
        pieces = ceil_div(groups, turns)
        waves = ceil_div(pieces * tiles, MULTIPROCESSORS * shape.blocks)
        cost = waves * turns * (rows * a["stride"] + 3 - a["stride"])
        if segments == 1 or cost < best[0]:
            best = cost, Cut(rows, pieces)
    return best[1]


def _width(a: Any) -> int:
    return pack_width(a["c"], 1, STRIPS[a["stride"]].width)


def depthwise_norm_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_depthwise_norm_forward``: the maps with partial sums, then their sum."""
    a, given = call.attributes, [operand is not None for operand in call.operands]
    shape, width = STRIPS[a["stride"]], _width(a)
    tile, tiles = tile_of(a["c"] // width)
    constants = {name: a[name] for name in ("r", "s", "stride", "c")}
    constants |= {"half": 1, "width": width, "across": shape.across, "blocks": shape.blocks}
    constants |= {"rows": a["strip_rows"], "tile": tile, "norm": int(given[GAMMA])}
    constants |= {"store": int(given[ACTIVATED]), "activation": a["activation"]}
    constants["whole"] = int(a["w"] % (shape.across * a["stride"]) == 0)
    grid = (a["partial_rows"], tiles, 1)
    first = launch("depthwise_norm.cu", "depthwise_norm_forward", grid, THREADS, **constants)
    finishes = map_constants(a, tile=1, summed=SUMS_OF_Y)
    grid = (ceil_div(a["c"], 32), 1, 1)
    source, name = "batch_norm_statistics.cu", "batch_norm_finalise"
    return [first, launch(source, name, grid, 1024, **finishes)]
