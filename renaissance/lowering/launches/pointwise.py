"""How the joined 1x1 convolution is cut into rows and filters (csrc/kernels/pointwise_tile.cuh).

A block keeps its filters in shared memory while it walks over the rows of a map; where they do not
all fit, or their sums take too many registers, several blocks read the same rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import launch, map_constants
from renaissance.lowering.launches.planned import Plan, PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

# Positions of operands of rn_pointwise_forward (csrc/ffi/decode_pointwise.h).
MEAN, SHORTCUT, SHORTCUT_MEAN, Y, MASK = 3, 5, 8, 10, 20

SHARED_BYTES = 227 * 1024
"""Shared memory of a multiprocessor (H200); the attribute ``shared_limit`` names another."""
LEAST_SHARED_BYTES = 99 * 1024
"""That of the smallest device."""
RESERVED_BYTES = 1024
"""What a block takes of it besides."""


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """How the work is cut up.

    Attributes:
        filters: Filters of a block; a multiple of 8 that divides all of them.
        depth: Times 32 channels of its rows that a warp asks for at once; divides them all.
        ahead: How many of these are on their way into shared memory; 0 for one, into registers.
        blocks: Blocks of a multiprocessor at a time: a bound on registers.
        threads: Threads of a block.
    """

    filters: int
    depth: int = 1
    ahead: int = 2
    blocks: int = 1
    threads: int = 256


def prologue_of(call: InPlaceCall) -> int:
    """0 without a norm, 1 with one, 2 with a shortcut too, 3 with one that is normalised."""
    if call.operands[MEAN] is None:
        return 0
    if call.operands[SHORTCUT] is None:
        return 1
    return 2 if call.operands[SHORTCUT_MEAN] is None else 3


def shared_bytes(shape: PointwiseShape, c: int, prologue: int) -> int:
    """Dynamic shared memory of a block; the kernel refuses to compile with another number."""
    steps, warps = ceil_div(c, 32), shape.threads // 32
    filters = max(steps * shape.filters * 64, warps * 2 * shape.filters * 4)
    norms = (0, 1, 1, 2)[prologue] * 3 * steps * 32 * 4
    turn = shape.depth * 2 * (2 if prologue > 1 else 1) * shape.threads * 16
    return filters + norms + shape.ahead * turn


def fits(shape: PointwiseShape, c: int, prologue: int, limit: int = SHARED_BYTES) -> bool:
    """Whether its blocks fit a multiprocessor of so much shared memory."""
    return (shared_bytes(shape, c, prologue) + RESERVED_BYTES) * shape.blocks <= limit


def depth_of(c: int) -> int:
    """Whole rows of few channels at once, else whole lines of memory if rows are made of them."""
    steps = ceil_div(c, 32)
    return steps if steps < 4 else next(d for d in (2, 3, 5, 1) if steps % d == 0)


def shape_of(c: int, k: int, prologue: int, limit: int = SHARED_BYTES) -> PointwiseShape | None:
    """The cut for so many channels and filters; None where a block cannot hold enough of them.

    As measured (benchmarks/notes_pointwise.md): one block to a multiprocessor, but two where sums
    take a third of the registers and rows are short; registers for few filters behind an add.

    Args:
        c: Channels.
        k: Filters.
        prologue: See :func:`prologue_of`.
        limit: Shared memory of a multiprocessor.
    """
    if c % 8 or k % 8:
        return None
    filters = [f for f in range(min(k, 256), 0, -8) if k % f == 0]
    for count, ahead in itertools.product(filters, (2, 0)):
        shape = PointwiseShape(count, depth_of(c), ahead)
        if prologue == 2 and count <= 64:
            shape = replace(shape, ahead=0)
        elif 64 <= count <= 96 and c <= 256:
            shape = replace(shape, blocks=2)
        if fits(shape, c, prologue, limit):
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
    tiles = ceil_div(rows, shape.threads // 32 * 16)
    return max(1, min(most, tiles, MULTIPROCESSORS * shape.blocks // (k // shape.filters)))


def pointwise_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_pointwise_forward``."""
    a, prologue = call.attributes, prologue_of(call)
    shape = shape_of(a["c"], a["k"], prologue, a.get("shared_limit", SHARED_BYTES))
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
        "depth": shape.depth,
        "ahead": shape.ahead,
        "threads": shape.threads,
        "blocks": shape.blocks,
        "shared_bytes": shared,
    }
    grid = (a["partial_rows"], a["k"] // shape.filters, 1)
    output = map_constants({"c": a["k"], "type": a["type"]}, tile=1, summed=2)
    finalise = (ceil_div(a["k"], 32), 1, 1)
    found = kernel("pointwise_forward.cu", "pointwise_forward", **constants)
    return [
        PlannedLaunch(found, grid, shape.threads, shared),
        launch("batch_norm_statistics.cu", "batch_norm_finalise", finalise, 1024, **output),
    ]


PLANS: dict[Target, Plan] = {targets.POINTWISE_FORWARD: pointwise_forward}
