"""Launches of convolutions of four channels by kernels of ours: the first layer of a network.

A library pads four channels to eight or more and loses what it pads. Kernels of ours read a row of
taps as one stretch of memory (``csrc/kernels/stem_conv.cuh``), take the sums of batch statistics on
the way, and keep the whole gradient of the filters on the chip.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.planned import PlannedLaunch, kernel
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div

CHANNELS, TILE, UNIT = 4, 16, 32
"""Channels of the map, windows of a tile, channels of a warp (``stem_conv.cu``)."""
FEW_FILTER_REGISTERS, MOST_FILTER_REGISTERS = 32, 112
SUM_REGISTERS, MOST_WARPS = 64, 14
"""Sums of a thread that leave room for so many warps; with twice as many sums there are eight."""
SHARED_BYTES = 227 << 10
"""Shared memory of a multiprocessor (H200); the attribute ``shared_limit`` names another."""
BESIDES = 8 << 10
"""What blocks take of it besides: sums that their warps hand over, and a reserve of the system."""


@dataclass(frozen=True, slots=True)
class ForwardShape:
    """How the forward kernel is cut up.

    Attributes:
        rows: Rows of the output that a block works on at a time.
        warps: Warps that share them, for every 32 channels.
        tiles: Tiles that a warp works on at once.
        blocks: Blocks of a multiprocessor.
    """

    rows: int
    warps: int
    tiles: int
    blocks: int


@dataclass(frozen=True, slots=True)
class WeightShape:
    """How the kernel of the filters' gradient is cut up.

    Attributes:
        rows: Rows of the output that a block works on at a time.
        channels: Channels of the outputs whose sums a warp keeps.
        filter_rows: Rows of taps for which it does.
        parts: Warps among which the tiles of a group are dealt out.
        stages: Groups in shared memory, all but one of them on their way.
        blocks: Blocks of a multiprocessor.
    """

    rows: int
    channels: int
    filter_rows: int
    parts: int
    stages: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Windows:
    """What ``stem_conv.cuh`` derives from a convolution's attributes.

    Attributes:
        across: Outputs that share a window.
        step: Columns from a window to the next.
        columns: Columns of a window.
        tiles: Tiles of windows in a row of the output.
        pitch: Columns of a row of the input in shared memory.
    """

    across: int
    step: int
    columns: int
    tiles: int
    pitch: int

    @classmethod
    def of(cls, a: Any) -> Windows:
        """Of a convolution with these attributes."""
        across = a["stride"] % 2 + 1
        step = a["stride"] * across
        columns = ceil_div(a["s"] + (across - 1) * a["stride"], 4) * 4
        tiles = ceil_div(a["q"], across * TILE)
        return cls(across, step, columns, tiles, (tiles * TILE - 1) * step + columns)

    def rows_bytes(self, a: Any, rows: int) -> int:
        """Shared memory for the rows of the input that so many of the output see."""
        return ((rows - 1) * a["stride"] + a["r"]) * self.pitch * CHANNELS * 2


def is_stem(call: InPlaceCall) -> bool:
    """Whether kernels of ours run this dense convolution."""
    a = call.attributes
    if a["type"] != 1 or (a["c"], a["groups"]) != (CHANNELS, 1) or a["k"] % 8:
        return False
    if call.target in (targets.CONV_FORWARD, targets.CONV_FORWARD_STATISTICS):
        return a["y_type"] == 1 and forward_shape(a) is not None
    return call.target == targets.CONV_BACKWARD_WEIGHT and weight_shape(a) is not None


def _constants(a: Any) -> dict[str, int]:
    return {name: a[name] for name in ("k", "r", "s", "stride", "pad")}


def _shared_limit(a: Any) -> int:
    return int(a.get("shared_limit", SHARED_BYTES)) - BESIDES


def _groups(a: Any, rows: int) -> int:
    return int(a["n"]) * ceil_div(a["p"], rows)


# -- forward --------------------------------------------------------------------------------------


def forward_shape(a: Any) -> ForwardShape | None:
    """How a forward pass is cut up; None where its filters do not fit a warp's registers.

    Args:
        a: Attributes of the convolution.
    """
    windows, units = Windows.of(a), ceil_div(a["k"], UNIT)
    filters = windows.across * a["r"] * windows.columns // 4 * 8
    if filters > MOST_FILTER_REGISTERS or units > 4:
        return None
    # Few warps have to multiply while they load; rows so that all have equally many tiles.
    tiles, blocks = (2, 1) if filters > FEW_FILTER_REGISTERS else (1, 2)
    warps = max(1, 8 // units)
    while blocks and _forward_bytes(a, warps * tiles) * blocks > _shared_limit(a):
        blocks -= 1
    return ForwardShape(warps * tiles, warps, tiles, blocks) if blocks else None


def _forward_bytes(a: Any, rows: int) -> int:
    return 2 * Windows.of(a).rows_bytes(a, rows)


def forward_blocks(a: Any, shape: ForwardShape) -> int:
    """Blocks of the forward pass: each leaves a row of partial sums, if there are statistics."""
    blocks = min(MULTIPROCESSORS * shape.blocks, _groups(a, shape.rows))
    return min(blocks, a.get("partial_rows", blocks))


def stem_forward(call: InPlaceCall, shape: ForwardShape | None = None) -> PlannedLaunch:
    """The launch of a forward pass; a shape other than the chosen one only to measure it."""
    a = call.attributes
    shape = shape or forward_shape(a)
    assert shape is not None, "is_stem was not asked"
    constants = {**_constants(a), **asdict(shape)}
    constants["statistics"] = int(call.target == targets.CONV_FORWARD_STATISTICS)
    found = kernel("stem_conv.cu", "stem_conv_forward", **constants)
    threads = ceil_div(a["k"], UNIT) * shape.warps * 32
    grid = (forward_blocks(a, shape), 1, 1)
    return PlannedLaunch(found, grid, threads, _forward_bytes(a, shape.rows))


# -- gradient of the filters ----------------------------------------------------------------------


def weight_shape(a: Any) -> WeightShape | None:
    """How the gradient of the filters is cut up; None where it does not fit.

    Args:
        a: Attributes of the convolution.
    """
    windows = Windows.of(a)
    wide = windows.across * a["k"]
    split = _split_of_sums(wide, a["r"], windows.columns)
    if split is None:
        return None
    jobs = ceil_div(wide, split[0]) * ceil_div(a["r"], split[1])
    warps = MOST_WARPS if _sums(*split, windows.columns) <= SUM_REGISTERS else MOST_WARPS // 2 + 1
    if jobs > warps:
        return None
    parts = warps // jobs
    for rows, stages in ((4, 3), (4, 2), (2, 4), (2, 3), (1, 4), (1, 3), (1, 2)):
        shape = WeightShape(rows, *split, parts, stages, 1)
        if _weight_bytes(a, shape) <= _shared_limit(a) and weight_blocks(a, shape) > 0:
            return shape
    return None


def _split_of_sums(wide: int, filter_rows: int, columns: int) -> tuple[int, int] | None:
    """Channels and rows of taps whose sums a warp can keep: many, so that it loads little."""
    for channels in (64, 32, 16):
        for rows in (filter_rows, 2, 1):
            fits = _sums(channels, rows, columns) <= 2 * SUM_REGISTERS and rows <= filter_rows
            if fits and channels < wide + 16:
                return channels, rows
    return None


def _sums(channels: int, rows: int, columns: int) -> int:
    """Sums of a thread."""
    return rows * channels * columns // 8


def _weight_bytes(a: Any, shape: WeightShape) -> int:
    windows = Windows.of(a)
    wide = windows.across * a["k"]
    channels, pitch = ceil_div(wide, shape.channels) * shape.channels, (wide // 8 | 1) * 8
    outputs = shape.rows * windows.tiles * TILE * pitch + max(0, channels - pitch)
    stage = windows.rows_bytes(a, shape.rows) + 2 * ceil_div(outputs, 8) * 8
    filter_rows = ceil_div(a["r"], shape.filter_rows) * shape.filter_rows
    sums = channels * filter_rows * windows.columns * CHANNELS * 4
    return max(shape.stages * stage, sums if shape.parts > 1 else 0)


def weight_blocks(a: Any, shape: WeightShape) -> int:
    """Blocks of the gradient: as many pieces as the workspace holds."""
    windows = Windows.of(a)
    piece = windows.across * a["k"] * a["r"] * windows.columns * CHANNELS * 4
    blocks = min(MULTIPROCESSORS * shape.blocks, _groups(a, shape.rows))
    return min(blocks, int(a["workspace_bytes"]) // piece)


def stem_weight(call: InPlaceCall, shape: WeightShape | None = None) -> list[PlannedLaunch]:
    """The launches of the filters' gradient; a shape other than the chosen one only to measure."""
    a = call.attributes
    shape = shape or weight_shape(a)
    assert shape is not None, "is_stem was not asked"
    pieces = weight_blocks(a, shape)
    constants = {**_constants(a), **asdict(shape), "pieces": pieces}
    filter_warps = ceil_div(a["r"], shape.filter_rows)
    jobs = ceil_div(Windows.of(a).across * a["k"], shape.channels) * filter_warps
    threads, shared = jobs * shape.parts * 32, _weight_bytes(a, shape)
    source, name = "stem_conv_weight.cu", "stem_conv_weight"
    product = kernel(source, name, **constants)
    finish = kernel(source, f"{name}_finish", **constants)
    elements = a["k"] * a["r"] * a["s"] * CHANNELS
    return [
        PlannedLaunch(product, (pieces, 1, 1), threads, shared),
        PlannedLaunch(finish, (ceil_div(elements, 32), 1, 1), 1024),
    ]
