"""How the joined 1x1 convolution is cut into rows and filters (csrc/kernels/pointwise_tile.cuh).

A block keeps its filters in shared memory while it walks over the rows of a map; where they do not
all fit, or their sums take too many registers, several blocks read the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import PlannedLaunch, kernel
from renaissance.lowering.packs import launch, map_constants
from renaissance.lowering.tiles import MULTIPROCESSORS, ceil_div

# Positions of operands of rn_pointwise_forward (csrc/ffi/decode_pointwise.h).
X, MEAN, SHORTCUT, SHORTCUT_MEAN, Y, FILTERS, OUTPUT, PARTIAL, MASK, PACKED = (
    0,
    3,
    5,
    8,
    10,
    11,
    12,
    19,
    20,
    21,
)

SHARED_BYTES = 227 * 1024
"""Dynamic shared memory that the blocks of a multiprocessor share."""
RESERVED_BYTES = 1024
"""What a block takes of it besides."""


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """How the work is cut up.

    Attributes:
        filters: Filters of a block; a multiple of 8 that divides all of them.
        row_blocks: Times 16 rows that a warp multiplies at once.
        depth: Times 32 channels of a warp's rows that it asks for at once; divides them all.
        ahead: How many of these are on their way.
        threads: Threads of a block.
        blocks: Blocks of a multiprocessor at a time: a bound on registers.
        warpgroups: Whether four warps multiply together where the device can.
        streams: Whether filters come with the rows, because they do not fit.
    """

    filters: int
    row_blocks: int = 1
    depth: int = 1
    ahead: int = 2
    threads: int = 256
    blocks: int = 1
    warpgroups: bool = False
    streams: bool = False


def prologue_of(call: InPlaceCall) -> int:
    """0 without a norm, 1 with one, 2 with a shortcut too, 3 with one that is normalised."""
    if call.operands[MEAN] is None:
        return 0
    if call.operands[SHORTCUT] is None:
        return 1
    return 2 if call.operands[SHORTCUT_MEAN] is None else 3


def shared_bytes(shape: PointwiseShape, c: int, prologue: int) -> int:
    """Dynamic shared memory of a block; the kernel refuses to compile with another number."""
    steps = ceil_div(c, 32)
    slots = shape.ahead + shape.streams
    filters = (slots * shape.depth if shape.streams else steps) * shape.filters * 64
    sums = shape.threads // 32 * 2 * shape.filters * 4
    norms = (0, 1, 1, 2)[prologue] * 3 * steps * 32 * 4
    packs = 2 * shape.row_blocks * (2 if prologue > 1 else 1)
    ring = slots * shape.depth * packs * shape.threads * 16
    return max(filters, sums) + norms + ring


def packed_bytes(shape: PointwiseShape, c: int, k: int) -> int:
    """Scratch memory that streamed filters take, all of them."""
    return ceil_div(c, 32) * k * 64 if shape.streams else 0


def fits(shape: PointwiseShape, c: int, prologue: int) -> bool:
    """Whether its blocks fit a multiprocessor."""
    return (shared_bytes(shape, c, prologue) + RESERVED_BYTES) * shape.blocks <= SHARED_BYTES


def depth_of(c: int) -> int:
    """Whole rows of few channels at once, else whole lines of memory if rows are made of them."""
    steps = ceil_div(c, 32)
    return steps if steps < 4 else next(d for d in (2, 3, 5, 1) if steps % d == 0)


def shape_of(c: int, k: int, prologue: int) -> PointwiseShape | None:
    """The cut for so many channels and filters; None where a block cannot hold enough of them."""
    if c % 8 or k % 8:
        return None
    for filters in range(min(k, 256), 0, -8):
        shape = PointwiseShape(filters, depth=depth_of(c))
        if k % filters == 0 and fits(shape, c, prologue):
            return shape
    return None


def blocks_along(rows: int, k: int, shape: PointwiseShape, most: int) -> int:
    """Blocks along the rows: a whole device of them where there is enough to do.

    Args:
        rows: Rows of the map.
        k: All filters.
        shape: The cut.
        most: Rows of partial sums there is memory for.
    """
    tiles = ceil_div(rows, shape.threads // 32 * 16 * shape.row_blocks)
    return max(1, min(most, tiles, MULTIPROCESSORS * shape.blocks // (k // shape.filters)))


def pointwise_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_pointwise_forward``."""
    a, prologue = call.attributes, prologue_of(call)
    shape = shape_of(a["c"], a["k"], prologue)
    assert shape is not None, "fused without a shape"
    shared = shared_bytes(shape, a["c"], prologue)
    constants = {
        "half": a["type"],
        "c": a["c"],
        "k": a["k"],
        "prologue": prologue,
        "activation": a["activation"],
        "mask": int(call.operands[MASK] is not None),
        "descending": int(prologue < 2),
        "filters": shape.filters,
        "row_blocks": shape.row_blocks,
        "depth": shape.depth,
        "ahead": shape.ahead,
        "threads": shape.threads,
        "blocks": shape.blocks,
        "warpgroups": int(shape.warpgroups),
        "stream": int(shape.streams),
        "shared_bytes": shared,
    }
    grid = (a["partial_rows"], a["k"] // shape.filters, 1)
    output = map_constants({"c": a["k"], "type": a["type"]}, tile=1, summed=2)
    finalise = (ceil_div(a["k"], 32), 1, 1)
    source, packing = "pointwise_forward.cu", []
    if shape.streams:
        found = kernel(source, "pointwise_filters", **constants)
        blocks = ceil_div(ceil_div(a["c"], 32) * shape.filters * 4, shape.threads)
        packing = [PlannedLaunch(found, (blocks, grid[1], 1), shape.threads)]
    found = kernel(source, "pointwise_forward", **constants)
    return [
        *packing,
        PlannedLaunch(found, grid, shape.threads, shared),
        launch("batch_norm_statistics.cu", "batch_norm_finalise", finalise, 1024, **output),
    ]
