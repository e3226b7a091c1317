"""How a depthwise convolution is launched that normalises what it reads and sums what it writes.

The kernel's threads walk down strips of the output (``csrc/kernels/depthwise_norm.cu``); a block
takes as many strips as fit beside each other, then a further group of them, and leaves one row of
partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import launch, map_constants, tile_of
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

# Positions of operands in the operation's record (csrc/ffi/decode_depthwise.h).
X, GAMMA, ACTIVATED, W, Y, PARTIAL = 0, 1, 5, 6, 7, 14
LINE_BYTES = 128
"""What the device reads at once."""


@dataclass(frozen=True, slots=True)
class StripShape:
    """How the kernel is cut up.

    Attributes:
        width: Channels of a thread; even.
        across: Output pixels of a thread along a row.
        blocks: Blocks that must fit on a multiprocessor, which bounds the registers.
    """

    width: int
    across: int
    blocks: int = 2


def shape_of(a: Any) -> StripShape:
    """Which shape suits a convolution; measured in ``benchmarks/notes_depthwise.md``.

    Seven pixels across need the fewest instructions, and reach the ends of most rows exactly; packs
    of two channels then read whole lines only where a warp's channels are neighbours.

    Args:
        a: Its attributes c, q and stride.
    """
    if a["q"] <= 7 or a["c"] % 4 or (a["stride"] == 1 and a["c"] % 64 == 0):
        return StripShape(2, 7)
    return StripShape(4, 3 if a["stride"] == 1 else 2)


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
    """The cut in which the device is done soonest, by a simple count of rows.

    All blocks run at once; each takes one group of strips after the other. A step over a row counts
    1, and a strip one more, before its first row has come.

    Args:
        a: The attributes n, p, q, c and stride of the convolution.
        most: Rows of partial sums there is room for.
    """
    shape = shape_of(a)
    tile, tiles = tile_of_columns(a["c"] // shape.width, 2 * shape.width)
    together = max(1, min(most, MULTIPROCESSORS * shape.blocks // tiles))
    best: tuple[int, Cut] | None = None
    for segments in range(1, a["p"] + 1):
        rows = ceil_div(a["p"], segments)
        strips = a["n"] * ceil_div(a["p"], rows) * ceil_div(a["q"], shape.across)
        groups = ceil_div(strips, THREADS // tile)
        turns = ceil_div(groups, together)
        cost = turns * (rows * a["stride"] + 3 - a["stride"] + 1)
        if best is None or cost < best[0]:
            best = cost, Cut(rows, min(groups, together))
    assert best is not None
    return best[1]


def tile_of_columns(columns: int, pack_bytes: int) -> tuple[int, int]:
    """Packs side by side in a block, and how many such tiles there are.

    Whole pixels, or whole lines of memory: other blocks read the rest of a line too late. Of these,
    what leaves the fewest threads idle.

    Args:
        columns: Packs of a pixel.
        pack_bytes: Bytes of a pack.
    """
    fitting = [
        tile
        for tile in range(1, min(columns, THREADS) + 1)
        if tile == columns or (columns % tile == 0 and tile * pack_bytes % LINE_BYTES == 0)
    ]
    if not fitting:
        return tile_of(columns)
    tile = max(fitting, key=lambda tile: (THREADS // tile * tile, -tile))
    return tile, columns // tile


def depthwise_norm_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_depthwise_norm_forward``: the maps with partial sums, then their sum."""
    a, given = call.attributes, [operand is not None for operand in call.operands]
    shape = shape_of(a)
    tile, tiles = tile_of_columns(a["c"] // shape.width, 2 * shape.width)
    constants = {name: a[name] for name in ("r", "s", "stride", "c")}
    constants |= {"half": 1, "width": shape.width, "across": shape.across}
    constants |= {"blocks": shape.blocks}
    constants |= {"rows": a["strip_rows"], "tile": tile, "norm": int(given[GAMMA])}
    constants |= {"store": int(given[ACTIVATED]), "activation": a["activation"]}
    constants["whole"] = int(a["w"] % (shape.across * a["stride"]) == 0)
    grid = (a["partial_rows"] * tiles, 1, 1)
    first = launch("depthwise_norm.cu", "depthwise_norm_forward", grid, THREADS, **constants)
    finishes = map_constants(a, tile=1, summed=1)
    grid = (ceil_div(a["c"], 32), 1, 1)
    source, name = "batch_norm_statistics.cu", "batch_norm_finalise"
    return [first, launch(source, name, grid, 1024, **finishes)]


PLANS: dict[Target, Plan] = {targets.DEPTHWISE_NORM_FORWARD: depthwise_norm_forward}
