"""Shapes of the matrix tiles of the fully connected kernels, and which one suits a layer.

A small layer is bound by the latency of its chain of products, not by bandwidth or arithmetic:
tiles are chosen so that about every multiprocessor has one, and the warps of a block share the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MULTIPROCESSORS = 132
FLOAT_TILE = (64, 64)
FLOAT_SHARED_BYTES = 2 * 16 * 68 * 4


def ceil_div(a: int, b: int) -> int:
    """The least integer at or above ``a / b``."""
    return -(-a // b)


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


LARGE = Tile(m=64, n=64, k=64, warps_m=2, warps_n=2, splits=2, stages=3)
MEDIUM = Tile(m=64, n=32, k=64, warps_m=2, warps_n=2, splits=2, stages=4)
SMALL = Tile(m=32, n=32, k=64, warps_m=1, warps_n=2, splits=4, stages=4)
NARROW = Tile(m=32, n=16, k=64, warps_m=1, warps_n=1, splits=4, stages=4)
FORWARD_TILES = (LARGE, MEDIUM, SMALL)
BACKWARD_TILES = (LARGE, MEDIUM)


def forward_tile(n: int, c: int, k: int) -> Tile:
    """The tile of y (n, k) = x w^T, a sum over c."""
    if k <= 16:
        return NARROW
    return _largest_that_fills(FORWARD_TILES, lambda t: ceil_div(n, t.m) * ceil_div(k, t.n))


def backward_tile(n: int, c: int, k: int) -> Tile:
    """The tile of dx (n, c) = dy w and dw (k, c) = dy^T x, which share a launch."""
    return _largest_that_fills(
        BACKWARD_TILES, lambda t: (ceil_div(n, t.m) + ceil_div(k, t.m)) * ceil_div(c, t.n)
    )


def _largest_that_fills(tiles: tuple[Tile, ...], blocks: Callable[[Tile], int]) -> Tile:
    """The first tile whose blocks nearly fill the device, else the last."""
    for tile in tiles:
        if blocks(tile) >= MULTIPROCESSORS * 3 // 4:
            return tile
    return tiles[-1]
