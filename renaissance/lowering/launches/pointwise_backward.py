"""Which CUDA kernels a pointwise convolution's input gradient and the norm behind it launch.

A convolution of one tap and stride 1 is a product of pixels by filters. Its kernel
(``csrc/kernels/pointwise_backward.cu``) is bound by bytes; its shape is chosen so that two blocks
fit on a multiprocessor, and as many bytes as possible are on their way at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import PIXELS_AHEAD, addend, launch, resident_grid
from renaissance.lowering.launches.planned import Plan, PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

SHARED_BYTES = 227 << 10
"""Shared memory of a block, at most (H200); the attribute ``shared_limit`` names another."""
BLOCK_OVERHEAD = 1 << 10
"""Shared memory that every block takes beside its own."""

# Positions of operands (csrc/pointwise_backward.h): dy and w, then those of rn_batch_norm_backward.
DY, W, NORM = 0, 1, 2
GATE, ARGMAX, X, SHORTCUT, SHORTCUT_MEAN, DX, DSHORTCUT, PARTIAL, ADDEND, MASK = (
    NORM + index for index in (1, 2, 3, 8, 11, 13, 16, 19, 20, 21)
)
PRODUCT = NORM
"""The product's place: the first operand of the norm."""


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """How the kernel is cut up; measured in ``benchmarks/notes_pointwise_backward.md``.

    Attributes:
        rows: Pixels of a tile.
        columns: Channels of a tile, a multiple of 16.
        depth: Channels of dy that a stage brings in, a multiple of 16.
        stages: Stages of dy in shared memory.
        warps_m: Warps along the pixels.
        warps_n: Warps along the channels.
        blocks: Blocks that must fit on a multiprocessor, which bounds registers and memory.
        groups: Whether warpgroups compute where the device has them; depth 64 then, rows and
            columns multiples of 64, of a warpgroup 64 pixels and 32, 64 or 128 channels.
    """

    rows: int
    columns: int
    depth: int
    stages: int = 2
    warps_m: int = 4
    warps_n: int = 2
    blocks: int = 2
    groups: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    def shared_bytes(self, k: int, maps: int, *, bits: bool) -> int:
        """Dynamic shared memory of a block.

        Args:
            k: Channels of dy.
            maps: Maps that the epilogue reads, beside the product.
            bits: Whether it reads bits of a mask, too.
        """
        deep = ceil_div(k, self.depth) * self.depth
        steps = ceil_div(self.rows, self.threads // (self.columns // 8))
        halves = (deep + self.rows) * (self.columns + 8)
        halves += self.stages * self.rows * (self.depth + 8)
        packs = steps * self.threads
        return 2 * halves + packs * (16 * maps + 4 * bits)


MEASURED: dict[tuple[int, int], PointwiseShape] = {
    (384, 64): PointwiseShape(128, 64, 64, 4, blocks=1),
    (192, 32): PointwiseShape(256, 32, 64, 3, 8, 2, 1),
}
"""Shapes that were faster than those by rule, by channels of dy and of the product."""


def shape_of(a: Mapping[str, Any], maps: int, *, bits: bool) -> PointwiseShape | None:
    """The shape for a call; None where no block would hold the filters that it needs.

    Args:
        a: rows, c and k of the call, and shared_limit where that is not an H200's.
        maps: Maps that the epilogue reads, beside the product.
        bits: Whether it reads bits of a mask, too.
    """
    k, c, limit = a["k"], a["c"], a.get("shared_limit", SHARED_BYTES)
    shapes = [*([MEASURED[k, c]] if (k, c) in MEASURED else []), *_shapes(k, c)]
    return next((s for s in shapes if fits(s, k, maps, bits=bits, limit=limit)), None)


def _shapes(k: int, c: int) -> list[PointwiseShape]:
    """Shapes for these channels, the best first.

    Wide tiles read dy less often. Where no two of them fit, blocks of narrow ones are faster than
    one of a wide one, whose waiting nothing else would fill.
    """
    found = []
    if k % 128 == 0 and c % 128 == 0:
        found.append(PointwiseShape(64, 128, 64, 2, 4, 2, 2, groups=True))
    if k % 128 == 0 and c % 64 == 0:
        found.append(PointwiseShape(64, 64, 64, 4, 4, 1, 2, groups=True))
    for most, least, blocks in ((128, 64, 2), (64, 64, 3), (64, 128, 2), (64, 64, 2), (128, 64, 1)):
        columns = columns_of(c, most)
        warps_n = 2 if columns % 32 == 0 else 1
        rows = max(least, min(256, 8192 // columns // 64 * 64), 16 * (8 // warps_n))
        rows = rows if most == 128 or columns < 64 else least
        found.append(PointwiseShape(rows, columns, depth_of(k), 2, 8 // warps_n, warps_n, blocks))
    least_memory = PointwiseShape(128, 32, depth_of(k, 32), 2, 4, 2, 1)
    return [*found, least_memory]


def depth_of(k: int, most: int = 64) -> int:
    """A slice of dy's channels: a multiple of 16 that wastes least, then the largest."""
    return max(range(16, most + 1, 16), key=lambda d: (-ceil_div(k, d) * d, d))


def columns_of(c: int, most: int) -> int:
    """Channels of a tile: a multiple of 16 that wastes least, then the largest."""
    return max(range(16, most + 1, 16), key=lambda n: (-ceil_div(c, n) * n, n))


def fits(
    shape: PointwiseShape, k: int, maps: int, *, bits: bool, limit: int = SHARED_BYTES
) -> bool:
    """Whether as many blocks as the shape asks for fit on a multiprocessor."""
    needed = shape.shared_bytes(k, maps, bits=bits) + BLOCK_OVERHEAD
    holds_sums = shape.rows * (shape.columns + 8) * 2 >= shape.threads * 32
    return holds_sums and shape.blocks * needed <= limit + BLOCK_OVERHEAD


def mask_of(call: InPlaceCall) -> int:
    """How the call knows where the activation is flat: 2 by bits, 1 by its output, 0 by norm(x)."""
    if call.attributes["activation"] == 0:
        return 0
    if len(call.operands) > MASK and call.operands[MASK] is not None:
        return 2
    return int(call.operands[GATE] is not None)


def shortcut_of(call: InPlaceCall) -> int:
    """What the call does for a shortcut: 2 a norm's backward, 1 leaves dz, 0 nothing."""
    if call.operands[SHORTCUT_MEAN] is not None:
        return 2
    return int(call.operands[DSHORTCUT] is not None)


def planned_shape(call: InPlaceCall) -> PointwiseShape | None:
    """:func:`shape_of` a call of ``rn_pointwise_backward_data``."""
    mask = mask_of(call)
    maps = 1 + (call.operands[ADDEND] is not None) + (mask == 1) + (shortcut_of(call) == 2)
    return shape_of(call.attributes, maps, bits=mask == 2)


def row_blocks(a: Mapping[str, Any], shape: PointwiseShape) -> int:
    """Blocks along the pixels, each with a row of partial sums: as many as run at once."""
    across = ceil_div(a["c"], shape.columns)
    together = max(1, shape.blocks * MULTIPROCESSORS // across)
    return min(ceil_div(a["rows"], shape.rows), together)


def pointwise_backward_data(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_pointwise_backward_data``: the product, then the rest of the norm."""
    a = call.attributes
    shape = planned_shape(call)
    assert shape is not None, "calls without a shape are not made"
    mask, shortcut, is_sum = mask_of(call), shortcut_of(call), call.operands[ADDEND] is not None
    maps = 1 + is_sum + (mask == 1) + (shortcut == 2)
    shared = shape.shared_bytes(a["k"], maps, bits=mask == 2)
    constants = {"half": 1, "c": a["c"], "k": a["k"], "width": 8, "activation": a["activation"]}
    constants |= {"mask": mask, "shortcut": shortcut, **addend(a, is_sum)}
    constants |= {"tile_m": shape.rows, "tile_n": shape.columns, "slice": shape.depth}
    constants |= {"stages": shape.stages, "warps_m": shape.warps_m, "warps_n": shape.warps_n}
    constants |= {"blocks": shape.blocks, "shared_bytes": shared, "wgmma": int(shape.groups)}
    product = kernel("pointwise_backward.cu", "pointwise_backward_data", **constants)
    grid = (ceil_div(a["c"], shape.columns), a["partial_rows"], 1)
    return [PlannedLaunch(product, grid, shape.threads, shared), *rest_of(call, shortcut)]


def rest_of(call: InPlaceCall, shortcut: int) -> list[PlannedLaunch]:
    """The norm's other passes: dz lies in dshortcut where it is wanted there, else in dy."""
    a = call.attributes
    constants = {"half": 1, "c": a["c"], "width": 8, "tile": 1, "activation": 0, "pooled": 0}
    constants |= {"gated": 0, "shortcut": shortcut, "addend": 0, "stash": int(shortcut == 1)}
    constants["ahead"] = PIXELS_AHEAD[shortcut]
    source, stem = "batch_norm_backward.cu", "batch_norm_backward"
    finalise = (ceil_div(a["c"], 32), 1, 1)
    ends = launch(source, f"{stem}_finalise", finalise, 1024, **constants)
    if call.operands[DX] is None and call.operands[DSHORTCUT] is None:
        return [ends]
    return [ends, launch(source, f"{stem}_apply", resident_grid(a, a["rows"]), 256, **constants)]


PLANS: dict[Target, Plan] = {targets.POINTWISE_BACKWARD_DATA: pointwise_backward_data}
