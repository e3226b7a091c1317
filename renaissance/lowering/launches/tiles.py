"""Shapes of the matrix tiles of the fully connected kernels, and which one suits a layer.

A small layer is bound by the latency of its chain of products, not by bandwidth or arithmetic:
tiles are chosen so that about every multiprocessor has one, and the warps of a block share the sum.
Which shapes are best was measured on an H200, ``benchmarks/fused_mlp.py --tiles``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

MULTIPROCESSORS = 132
FLOAT_THREADS = 256


def ceil_div(a: int, b: int) -> int:
    """The least integer at or above ``a / b``."""
    return -(-a // b)


AnyTile = TypeVar("AnyTile")


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of an fp16 tile; see ``csrc/kernels/tile.cuh``.

    Attributes:
        m: Rows of the output a block computes.
        n: Columns of the output a block computes.
        k: Length of the sum that a stage brings in.
        warps_m: Warps along the rows.
        warps_n: Warps along the columns.
        splits: Warps that share a sum.
        stages: Stages in flight.
    """

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    splits: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps_m * self.warps_n * self.splits * 32

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's constants."""
        shape = {"tile_m": self.m, "tile_n": self.n, "tile_k": self.k}
        warps = {"warps_m": self.warps_m, "warps_n": self.warps_n}
        return {**shape, **warps, "splits": self.splits, "stages": self.stages}

    def shared_bytes(self, a_along_k: bool, b_along_k: bool) -> int:
        """Dynamic shared memory of a block; the kernel refuses to compile with another number.

        Args:
            a_along_k: Whether the left operand lies along the sum in memory.
            b_along_k: Whether the right operand does.
        """
        a = self.m * (self.k + 8) if a_along_k else self.k * (self.m + 8)
        b = self.n * (self.k + 8) if b_along_k else self.k * (self.n + 8)
        return max(self.stages * (a + b) * 2, (self.splits - 1) * self.m * self.n * 4)


@dataclass(frozen=True, slots=True)
class FloatTile:
    """The shape of an fp32 tile; see ``csrc/kernels/simt.cuh``.

    Attributes:
        m: Rows of the output a block computes.
        n: Columns of the output a block computes.
    """

    m: int
    n: int

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's constants."""
        return {"tile_m": self.m, "tile_n": self.n}

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block; the kernel refuses to compile with another number."""
        return 16 * (self.m + 4 + self.n + 4) * 4


LARGE = Tile(m=64, n=64, k=64, warps_m=2, warps_n=2, splits=2, stages=3)
MEDIUM = Tile(m=64, n=32, k=64, warps_m=2, warps_n=2, splits=2, stages=4)
SMALL = Tile(m=32, n=32, k=128, warps_m=1, warps_n=2, splits=4, stages=3)
NARROW = Tile(m=32, n=16, k=128, warps_m=1, warps_n=1, splits=4, stages=3)
WEIGHTS_ONLY = Tile(m=64, n=64, k=64, warps_m=2, warps_n=2, splits=1, stages=4)
LARGE_SHARED = Tile(m=64, n=64, k=64, warps_m=2, warps_n=2, splits=4, stages=3)
SMALL_SHARED = Tile(m=32, n=32, k=64, warps_m=1, warps_n=2, splits=4, stages=3)
FLOAT_TILES = (FloatTile(64, 64), FloatTile(32, 64), FloatTile(32, 32))


def forward_tile(n: int, c: int, k: int) -> Tile:
    """The tile of y (n, k) = x w^T, a sum over c."""
    if k <= 16:
        return NARROW
    tiles = (LARGE, MEDIUM, SMALL)
    return _largest_that_fills(tiles, [ceil_div(n, t.m) * ceil_div(k, t.n) for t in tiles])


def backward_tile(n: int, c: int, k: int, *, data: bool) -> Tile:
    """The tile of dw (k, c) = dy^T x and, with ``data``, of dx (n, c) = dy w in the same launch."""
    tiles = (LARGE_SHARED if data else WEIGHTS_ONLY, SMALL_SHARED)
    rows = [ceil_div(k, t.m) + (ceil_div(n, t.m) if data else 0) for t in tiles]
    blocks = [r * ceil_div(c, t.n) for r, t in zip(rows, tiles, strict=True)]
    return _largest_that_fills(tiles, blocks)


def float_tile(rows: int, columns: int) -> FloatTile:
    """The tile of an fp32 product of so many rows and columns."""
    blocks = [ceil_div(rows, t.m) * ceil_div(columns, t.n) for t in FLOAT_TILES]
    return _largest_that_fills(FLOAT_TILES, blocks)


def _largest_that_fills(tiles: tuple[AnyTile, ...], blocks: list[int]) -> AnyTile:
    """The first tile whose blocks nearly fill the device, else the last."""
    for tile, count in zip(tiles, blocks, strict=True):
        if count >= MULTIPROCESSORS * 3 // 4:
            return tile
    return tiles[-1]
