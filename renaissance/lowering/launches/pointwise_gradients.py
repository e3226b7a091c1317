"""Which CUDA kernels both gradients of a pointwise convolution and the norm before it launch.

The kernel (``csrc/kernels/pointwise_gradients.cu``) is that of the input's gradient
(:mod:`renaissance.lowering.launches.pointwise_backward`) which keeps a tile of dy in shared memory
until it has added to the filters' gradient, too. That is summed in registers, a piece to a warp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import launch
from renaissance.lowering.launches.planned import Plan, PlannedLaunch, kernel
from renaissance.lowering.launches.pointwise_backward import (
    BLOCK_OVERHEAD,
    NORM,
    PARTIAL,
    SHARED_BYTES,
    PointwiseShape,
    columns_of,
    depth_of,
    rest_of,
    row_blocks,
)
from renaissance.lowering.launches.tiles import ceil_div

# Positions of operands (csrc/pointwise_backward.h), behind those of rn_pointwise_backward_data.
DW, WEIGHT_PARTIAL = NORM + 22, NORM + 23

REGISTERS_OF_SUMS = 24 << 10
"""Of a multiprocessor's 64 K registers, those that sums of the filters' gradient may take."""
MOST_SUMS = 160
"""Sums that a thread can keep beside the rest."""


@dataclass(frozen=True, slots=True)
class GradientsShape:
    """How the kernel is cut up; measured in ``benchmarks/notes_pointwise_gradients.md``.

    Attributes:
        tile: As for the input's gradient; its stages hold a tile of dy and slices of the next.
        weight_m: Warps along the channels of x in the filters' gradient.
        weight_n: Warps along the channels of dy in it; the rest of them share the pixels.
        x_stages: Tiles of x on their way or in use.
        batch: Slices of dy that are waited for at once; divides those of a tile.
    """

    tile: PointwiseShape
    weight_m: int = 1
    weight_n: int = 1
    x_stages: int = 1
    batch: int = 1

    def shared_bytes(self, k: int) -> int:
        """Dynamic shared memory of a block.

        Args:
            k: Channels of dy.
        """
        tile = self.tile
        if not tile.groups:
            return tile.shared_bytes(k, self.x_stages, bits=False)
        steps = ceil_div(tile.rows, tile.threads // (tile.columns // 8))
        halves = _deep(k, tile) * tile.columns + tile.rows * (tile.columns + 8)
        return (
            2 * (halves + tile.stages * tile.rows * 64) + self.x_stages * steps * tile.threads * 16
        )


MEASURED: dict[tuple[int, int], GradientsShape] = {
    (96, 16): GradientsShape(PointwiseShape(128, 16, 96, 3, 4, 1, 2), 1, 1, 2),
    (16, 32): GradientsShape(PointwiseShape(128, 32, 16, 3, 4, 1, 3), 1, 1, 2),
    (24, 96): GradientsShape(PointwiseShape(64, 96, 32, 3, 2, 3, 2), 3, 1, 2),
    (24, 144): GradientsShape(PointwiseShape(96, 144, 32, 2, 3, 3, 1), 3, 1, 2),
    (64, 384): GradientsShape(PointwiseShape(64, 64, 64, 3, 4, 1, 3, groups=True), 2, 2),
    (64, 192): GradientsShape(PointwiseShape(64, 64, 64, 3, 4, 1, 3, groups=True), 2, 2),
    (96, 576): GradientsShape(PointwiseShape(64, 64, 64, 4, 4, 1, 3, groups=True), 2, 2, 1, 2),
    (96, 384): GradientsShape(PointwiseShape(64, 64, 64, 4, 4, 1, 2, groups=True), 2, 2),
}
"""Shapes that were faster than those by rule, by channels of dy and of the product."""


def shape_of(a: Mapping[str, Any]) -> GradientsShape | None:
    """The shape for a call; None where no block would hold what it needs.

    Args:
        a: rows, c and k of the call, and shared_limit where that is not an H200's.
    """
    k, c, limit = a["k"], a["c"], a.get("shared_limit", SHARED_BYTES)
    shapes = [*([MEASURED[k, c]] if (k, c) in MEASURED else []), *_shapes(k, c)]
    return next((s for s in shapes if fits(s, k, limit)), None)


def _shapes(k: int, c: int) -> list[GradientsShape]:
    """Shapes for these channels, the best first."""
    found = []
    if k % 64 == 0 and 128 <= k <= 256 and c % 64 == 0:
        tile = PointwiseShape(64, 64, 64, k // 64 + 3, 4, 1, 2, groups=True)
        found.append(GradientsShape(tile, 2, 2))
    for most, rows in ((64, 64), (32, 128)):
        columns = columns_of(c, most)
        warps_n = 2 if columns % 32 == 0 else 1
        high = max(rows, min(256, 8192 // columns // 64 * 64), 16 * (8 // warps_n))
        depth = depth_of(k)
        tile = PointwiseShape(high, columns, depth, ceil_div(k, depth) + 2, 8 // warps_n, warps_n)
        found += laid(tile, k)
    depth = depth_of(k, 32)
    columns = columns_of(c, 32)
    rows = 64 if columns == 32 else 128
    least = PointwiseShape(rows, columns, depth, ceil_div(k, depth) + 1, 4, 1, 1)
    return [*found, *laid(least, k)]


def laid(tile: PointwiseShape, k: int) -> list[GradientsShape]:
    """The ways to lay a block's warps over the filters' gradient, those of fewest sums first; of
    them, those that load the least."""
    across, along = tile.columns // 16, _deep(k, tile) // 16
    warps = tile.threads // 32
    most = min(MOST_SUMS, REGISTERS_OF_SUMS // (tile.threads * tile.blocks))
    found = []
    for m in (1, 2, 3, 4, 6, 8, 9):
        for n in (1, 2, 4, 8):
            splits = warps // (m * n)
            if warps % (m * n) or across % m or along % n or tile.rows % (16 * splits):
                continue
            sums, loads = across // m * (along // n) * 8, across // m + along // n
            if sums <= most:
                found.append(((loads / sums, sums), GradientsShape(tile, m, n)))
    return [shape for _, shape in sorted(found, key=lambda entry: entry[0])]


def _deep(k: int, tile: PointwiseShape) -> int:
    return ceil_div(k, tile.depth) * tile.depth


def fits(shape: GradientsShape, k: int, limit: int = SHARED_BYTES) -> bool:
    """Whether as many blocks as the shape asks for fit on a multiprocessor."""
    tile, needed = shape.tile, shape.shared_bytes(k)
    holds_sums = tile.rows * (tile.columns + 8) * 2 >= tile.threads * 32
    holds_split = tile.groups or tile.columns * _deep(k, tile) * 4 <= needed
    return (
        holds_sums
        and holds_split
        and tile.blocks * (needed + BLOCK_OVERHEAD) <= limit + BLOCK_OVERHEAD
    )


def partial_rows(call: InPlaceCall) -> int:
    """Blocks along the pixels, each with rows of partial sums: as many as run at once, and as their
    places have room for."""
    a, shape = call.attributes, shape_of(call.attributes)
    assert shape is not None, "calls without a shape are not made"
    rooms = ((PARTIAL, 8 * a["c"]), (WEIGHT_PARTIAL, 4 * a["k"] * a["c"]))
    places = [(call.operands[index], row) for index, row in rooms]
    room = [place.nbytes // row for place, row in places if isinstance(place, Location)]
    return min([row_blocks(a, shape.tile), *room])


def pointwise_gradients(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_pointwise_backward``: products, the end of sums, the rest of the norm."""
    a = call.attributes
    shape = shape_of(a)
    assert shape is not None, "calls without a shape are not made"
    tile, shared = shape.tile, shape.shared_bytes(a["k"])
    constants = {"half": 1, "c": a["c"], "k": a["k"], "width": 8, "activation": a["activation"]}
    constants |= {"tile_m": tile.rows, "tile_n": tile.columns, "slice": tile.depth}
    constants |= {"stages": tile.stages, "warps_m": tile.warps_m, "warps_n": tile.warps_n}
    constants |= {"blocks": tile.blocks, "shared_bytes": shared, "wgmma": int(tile.groups)}
    constants |= {"weight_m": shape.weight_m, "weight_n": shape.weight_n}
    constants |= {"x_stages": shape.x_stages, "batch": shape.batch}
    products = kernel("pointwise_gradients.cu", "pointwise_gradients", **constants)
    grid = (ceil_div(a["c"], tile.columns), a["partial_rows"], 1)
    few = {name: constants[name] for name in ("half", "c", "k", "width")}
    ends = (ceil_div(a["c"], 32) + ceil_div(a["k"] * a["c"], 32), 1, 1)
    return [
        PlannedLaunch(products, grid, tile.threads, shared),
        launch("pointwise_gradients_sum.cu", "pointwise_gradients_sum", ends, 1024, **few),
        *rest_of(call, 0)[1:],
    ]


PLANS: dict[Target, Plan] = {targets.POINTWISE_BACKWARD: pointwise_gradients}
