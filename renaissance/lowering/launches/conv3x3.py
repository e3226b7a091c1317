"""Launches of 3x3 convolutions of 64 channels, and of their input gradients, by a kernel of ours.

So few channels leave a library's tiles half empty, or its operands read too often. Ours
(``csrc/kernels/conv3x3.cu``) keeps all filters on the chip and uses each operand that it reads for
the taps of three rows. It needs warpgroups; other devices, and maps whose tiles would be padded too
much, are left to the library.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.planned import PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

ARCHITECTURE = "sm_90a"
CHANNELS, WIDE, STRIPS = 64, 8, 8
"""Channels of both maps, columns of a tile, strips of a tile (``conv3x3.cuh``)."""
FILTER_BYTES = 5 * 3 * CHANNELS * CHANNELS * 2
STAGE_BYTES = CHANNELS // 8 * (STRIPS * (WIDE + 2) + 1) * 16
FEWEST_TILES = 2 * MULTIPROCESSORS
"""Tiles that give every warpgroup one."""
MOST_PADDING = 1.15
"""Pixels of tiles to those of the map, at most."""
FEWEST_JOINED_TILES = 1536
"""Tiles from which the norm that reads a gradient is faster joined with it."""

NORM = 3
"""Where operands of the norm begin in ``rn_conv_backward_data_norm``: behind dy, the filters
and a workspace."""
TABLE_BYTES = 3 * CHANNELS * 4
"""Shared memory for the norm's constants."""
_BACKWARD = (targets.CONV_BACKWARD_DATA, targets.CONV_BACKWARD_DATA_NORM)


@dataclass(frozen=True, slots=True)
class Conv3x3Shape:
    """How the kernel is cut up; measured in ``benchmarks/notes_conv3x3.md``.

    Attributes:
        groups: Warpgroups of a block.
        stages: Steps in shared memory for each of them, all but two on their way.
        strip: Rows of a strip.
    """

    groups: int
    stages: int
    strip: int

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return FILTER_BYTES + self.groups * self.stages * STAGE_BYTES

    def tiles(self, a: Any) -> int:
        """Tiles of a map.

        Args:
            a: Attributes of the convolution.
        """
        return int(a["n"]) * ceil_div(a["h"], STRIPS * self.strip) * ceil_div(a["w"], WIDE)

    def padding(self, a: Any) -> float:
        """Pixels of its tiles to those of the map.

        Args:
            a: Attributes of the convolution.
        """
        pixels = int(a["n"] * a["h"] * a["w"])
        return self.tiles(a) * STRIPS * self.strip * WIDE / pixels


def conv3x3_shape(a: Any) -> Conv3x3Shape:
    """The shape whose strips fit the map's rows best, the longer ones where two do.

    Args:
        a: Attributes of the convolution.
    """
    shapes = (Conv3x3Shape(2, 5, strip) for strip in (7, 6, 5, 4))
    return min(shapes, key=lambda shape: shape.padding(a))


def is_conv3x3(call: InPlaceCall) -> bool:
    """Whether the kernel runs this dense convolution."""
    a = call.attributes
    forward = (targets.CONV_FORWARD, targets.CONV_FORWARD_STATISTICS)
    if call.target not in (*forward, *_BACKWARD) or a["type"] != 1:
        return False
    if call.target in forward and a["y_type"] != 1:
        return False
    window = tuple(a[name] for name in ("c", "k", "r", "s", "stride", "pad", "groups"))
    if window != (CHANNELS, CHANNELS, 3, 3, 1, 1, 1) or not a.get("warpgroups", True):
        return False
    shape = conv3x3_shape(a)
    return shape.tiles(a) >= FEWEST_TILES and shape.padding(a) <= MOST_PADDING


def conv3x3(call: InPlaceCall, shape: Conv3x3Shape | None = None) -> PlannedLaunch:
    """The launch of a convolution; a shape other than the chosen one only to measure it."""
    a = call.attributes
    shape = shape or conv3x3_shape(a)
    has_statistics = call.target == targets.CONV_FORWARD_STATISTICS
    blocks = min(MULTIPROCESSORS, ceil_div(shape.tiles(a), shape.groups))
    has_norm = call.target == targets.CONV_BACKWARD_DATA_NORM
    if has_norm or has_statistics:
        blocks = min(blocks, a["partial_rows"])
    shared = shape.shared_bytes + has_norm * TABLE_BYTES
    constants = {**asdict(shape), "shared_bytes": shared, "statistics": int(has_statistics)}
    constants |= {"backward": int(call.target in _BACKWARD), "norm": int(has_norm)}
    constants["activation"] = a["activation"] if has_norm else 0
    found = replace(kernel("conv3x3.cu", "conv3x3", **constants), architecture=ARCHITECTURE)
    return PlannedLaunch(found, (blocks, 1, 1), shape.groups * 128, shared)
