"""What fits the persistent MLP kernel, and what it needs: the part of its plan callers ask for.

The kernel decides its layout while it compiles (``csrc/kernels/mlp_persistent_plan.cuh``); these
are the same formulas, held equal by a test: a network is refused before anything compiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

GROUP, CLUSTERS = 16, 7
"""Blocks of a cluster, and clusters; an H200 runs seven of sixteen at once."""
BLOCKS = GROUP * CLUSTERS
THREADS = 384
SHARED_BYTES = 232_448
MOST_LAYERS, MOST_CLASSES, MOST_ROWS = 8, 16, 32 * CLUSTERS
HIDDEN = (256, 512, 768, 1024)
_LEAST_RING, _MOST_COPIES, _BARRIERS = 40_960, 56, 16


def round_up(value: int, unit: int) -> int:
    """The least multiple of ``unit`` that is not below ``value``."""
    return -(-value // unit) * unit


@dataclass(frozen=True)
class MlpPlan:
    """The plan of one network and batch.

    Attributes:
        widths: Of the input and after each layer.
        batch: Rows of a step.
    """

    widths: tuple[int, ...]
    batch: int

    @property
    def layers(self) -> int:
        """Fully connected layers."""
        return len(self.widths) - 1

    def problems(self) -> list[str]:
        """Why the kernel cannot run it, in words; empty if it can."""
        found = []
        hidden = [self.width(layer) for layer in range(1, self.layers)]
        if not 3 <= self.layers <= MOST_LAYERS:
            found.append(f"{self.layers} layers, expected 3 to {MOST_LAYERS}")
        if self.widths[-1] > MOST_CLASSES:
            found.append(f"{self.widths[-1]} classes, expected at most {MOST_CLASSES}")
        if any(width not in HIDDEN for width in hidden):
            found.append(f"hidden widths {self.widths[1:-1]}, expected them to pad to {HIDDEN}")
        if self.widths[0] % 8:
            found.append(f"input width {self.widths[0]}, expected a multiple of 8")
        if self.batch > MOST_ROWS:
            found.append(f"batch of {self.batch}, expected at most {MOST_ROWS}")
        return found or self._too_large()

    def _too_large(self) -> list[str]:
        found = []
        if self._first_tiles(self.input_slab) > BLOCKS:
            found.append(f"first layer of {self.widths[:2]}, expected at most {BLOCKS} tiles")
        if self._other_tiles > BLOCKS:
            found.append(f"layers of {self.widths[1:]}, expected at most {BLOCKS} tiles")
        if self.ring_bytes < max(_LEAST_RING, self._ring_use) or self._copies > _MOST_COPIES:
            found.append(f"widths {self.widths}, expected them to fit shared memory")
        return found

    @cached_property
    def input_slab(self) -> int:
        """Columns of a tile of the first weight gradient: whatever pads the input least."""

        def cost(slab: int) -> tuple[bool, int, int]:
            return self._first_tiles(slab) > BLOCKS, round_up(self.widths[0], slab), -slab

        return min(range(16, 129, 16), key=cost)

    def width(self, layer: int) -> int:
        """Padded width after a layer; 0 is the input."""
        if layer == 0:
            return round_up(self.widths[0], self.input_slab)
        return 16 if layer == self.layers else round_up(self.widths[layer], 16 * GROUP)

    @property
    def work_bytes(self) -> int:
        """Device memory it works in."""
        rows, groups = self._rows * CLUSTERS, self._row_groups * CLUSTERS
        padded = [self.width(layer) for layer in range(self.layers + 1)]
        at = 1024 + 2 * groups * 16 + 256
        for width in padded[1:]:
            at = round_up(at, 256) + groups * width * 4
        at = round_up(at, 1024) + 2 * rows * padded[0] * 2
        weights = sum(2 * n * k for k, n in zip(padded, padded[1:], strict=False))
        at += 2 * round_up(weights, 1024)
        return at + sum(2 * rows * round_up(width, 64) * 2 for width in padded[1:])

    # -- tiles and shared memory ------------------------------------------------------------------

    @property
    def _rows(self) -> int:
        return round_up(-(-self.batch // CLUSTERS), 16)

    @property
    def _row_groups(self) -> int:
        return self._rows // 8

    @property
    def _gradient_groups(self) -> int:
        return 2 * -(-self.batch // 16)

    def _first_tiles(self, slab: int) -> int:
        return self.width(1) // 64 * (round_up(self.widths[0], slab) // slab)

    @property
    def _other_tiles(self) -> int:
        layers = range(2, self.layers + 1)
        rows = {layer: 1 if layer == self.layers else self.width(layer) // 64 for layer in layers}
        return sum(rows[layer] * (self.width(layer - 1) // 128) for layer in layers)

    def _scratch(self, layer: int) -> int:
        tiles = self._tiles(layer)
        return (2 if tiles == 4 else 8) * tiles * self._row_groups * 512

    def _tiles(self, layer: int) -> int:
        return 1 if layer == self.layers else self.width(layer) // (16 * GROUP)

    def _activation(self, layer: int) -> int:
        return self._rows * self.width(layer) * 2

    def _area(self, parity: int) -> int:
        last, head = self.layers, self._scratch(self.layers)
        sizes = [self._gradient_groups * self.input_slab * 16 if parity else self._scratch(1)]
        for layer in range(last):
            if layer % 2 == parity:
                sizes.append(self._activation(layer) + (head if layer == last - 1 else 0))
            elif layer >= 2:
                behind = max(self._scratch(layer), self._activation(last - 1) + head)
                offset = behind if layer == last - 2 else 0
                sizes.append(offset + self._activation(layer))
        return round_up(max(sizes), 1024)

    @property
    def ring_bytes(self) -> int:
        """Shared memory that weights pass through."""
        barriers = 8 * (2 * _MOST_COPIES + _BARRIERS + 6)
        misc = self._area(0) + self._area(1) + 2 * 4 * 8 * 256 * 4
        zero = round_up(misc + barriers + 16 + 64 + 8 * 16, 128)
        biases = sum(16 * self._tiles(layer) for layer in range(1, self.layers)) + 16
        table = round_up(zero + 128 + self._rows * 32 + 12 * biases, 16)
        return (SHARED_BYTES - round_up(table + 32 * _MOST_COPIES, 128)) // 128 * 128

    @property
    def _ring_use(self) -> int:
        groups, a, b = self._gradient_groups, self._area(0), self._area(1)

        def part(wanted: int, room: int) -> int:  # C++ divides towards zero
            return min(int(room / 3072 / 2) * 2, wanted)

        first = part(groups, a // 2)
        second = part(groups - first, a - first * 3072)
        third = part(groups - first - second, b - groups * self.input_slab * 16)
        return groups * 1024 + (groups - first - second - third) * 3072

    @property
    def _copies(self) -> int:
        count = 1 + 7  # the head, and what is not weights
        for layer in range(1, self.layers):
            slab = self.input_slab if layer == 1 else self.width(layer - 1) // GROUP
            slabs = self.width(layer - 1) // slab
            bytes_of_slab = 2 * self._tiles(layer) * slab * 16
            count += slabs // _divisor(slabs, 8192 // bytes_of_slab)
            if layer > 1:
                steps = self.width(layer) // 16
                count += steps // _divisor(steps, 8192 // (slab * 32))
        return count


def _divisor(of: int, most: int) -> int:
    """The largest divisor up to a bound."""
    return next(n for n in range(max(1, most), 0, -1) if of % n == 0)
