"""Which CUDA kernels the fused backward of a depthwise convolution launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import launch, tile_of
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch
from renaissance.lowering.launches.tiles import MULTIPROCESSORS, ceil_div


@dataclass(frozen=True, slots=True)
class BackwardShape:
    """How the kernel is cut up; measured in ``benchmarks/notes_depthwise_backward.md``.

    Attributes:
        width: Channels of a thread; even.
        across: Input pixels of a thread along a row, a multiple of the stride.
        blocks: Blocks that must fit on a multiprocessor, which bounds the registers.
    """

    width: int = 2
    across: int = 4
    blocks: int = 2


STEPS_OF_A_BLOCK = 8
"""Steps at least that a block takes: its first one only fills its window."""

# Positions of operands of rn_depthwise_conv_backward (csrc/depthwise_backward.h).
_Y_MEAN, _X_MEAN = 4, 12


def shape_of(a: Any) -> BackwardShape:
    """How the pass is cut up for a convolution of these sizes.

    Four pixels a thread and two blocks; seven and one where rows are sevens and not fours, so that
    no thread works beyond a row's end.
    """
    is_sevens = a["stride"] == 1 and a["w"] % 7 == 0 and a["w"] % 4 != 0
    return BackwardShape(across=7, blocks=1) if is_sevens else BackwardShape()


def pieces_of(a: Any) -> int:
    """Pieces the sums are split into: as many as run at once, and no more than have work.

    Args:
        a: The convolution's sizes.
    """
    shape = shape_of(a)
    tile, tiles = tile_of(a["c"] // shape.width)
    groups = ceil_div(a["n"] * ceil_div(a["w"], shape.across), THREADS // tile)
    steps = groups * ceil_div(a["h"] + a["pad"], a["stride"])
    return max(1, min(MULTIPROCESSORS * shape.blocks // tiles, steps // STEPS_OF_A_BLOCK))


def depthwise_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_depthwise_conv_backward``: the pass, and the sum of its pieces."""
    a = call.attributes
    shape = shape_of(a)
    tile, tiles = tile_of(a["c"] // shape.width)
    whole = a["w"] % shape.across == 0 and a["q"] * a["stride"] >= a["w"]
    constants = {name: a[name] for name in ("c", "r", "s", "stride", "pad")}
    constants |= {name: getattr(shape, name) for name in ("width", "across", "blocks")}
    constants |= {name: a[name] for name in ("y_activation", "x_activation")}
    constants |= {
        "half": a["type"], "tile": tile, "whole": int(whole),
        "y_norm": int(call.operands[_Y_MEAN] is not None),
        "x_norm": int(call.operands[_X_MEAN] is not None),
    }  # fmt: skip
    grid, stem = (a["partial_rows"], tiles, 1), "depthwise_conv_backward"
    sums = (ceil_div(a["r"] * a["s"] * a["c"], 32), 1, 1)
    few = {name: constants[name] for name in ("c", "r", "s", "half", "width")}
    return [
        launch("depthwise_backward.cu", stem, grid, THREADS, **constants),
        launch("depthwise_backward_sum.cu", f"{stem}_sum", sums, 1024, **few),
    ]


PLANS: dict[Target, Plan] = {targets.DEPTHWISE_CONV_BACKWARD: depthwise_backward}
