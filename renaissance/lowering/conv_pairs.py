"""A strided convolution of four channels, run on pairs of columns as one of eight.

The first layer of a network sees four channels, too few for a library's matrix instructions: its
weight gradient in ResNet-50 takes 2.6 ms on an H200, though its maps move in 0.15. Two
neighbouring columns lie together in memory, so a map (h, w, 4) is one of (h, w / 2, 8) as it
stands. With stride 2 every output begins at a pair, and the filter becomes one over pairs, with
zeros where it covers more columns than it has taps. Packing it, and unpacking its gradient, moves
a few kilobytes.
"""

from __future__ import annotations

from dataclasses import replace

from renaissance.lowering import targets
from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import THREADS, PlannedLaunch, spread
from renaissance.lowering.packs import launch
from renaissance.lowering.targets import Convolution
from renaissance.lowering.tiles import ceil_div

PACKED_BYTES = 1 << 16
"""Bytes at the begin of the workspace for packed filters (``kPackedFilterBytes``)."""
CHANNELS, STRIDE = 4, 2


def pairs_before(pad: int) -> int:
    """Pairs of columns that the filter covers before the one its output begins at, and behind."""
    return ceil_div(pad, 2)


def in_pairs(convolution: Convolution) -> Convolution | None:
    """The same convolution on pairs of columns; None where that does not work.

    Args:
        convolution: Of fp16 maps; forward, or the gradient of its weights.
    """
    n, h, w, c, k, p, q, r, s, stride, pad, groups = convolution.sizes
    left = pairs_before(pad)
    packed = k * r * (2 * left + 1) * 2 * CHANNELS * 2
    workspace = convolution.workspace_bytes - PACKED_BYTES
    fits = packed <= PACKED_BYTES and workspace >= 0 and s - 1 - pad <= 2 * left + 1
    is_such = (c, stride, groups, convolution.type) == (CHANNELS, STRIDE, 1, 1)
    known = convolution.kind != "backward_data"
    if not (fits and is_such and known and w % 2 == 0 and q == w // 2):
        return None
    sizes = (n, h, w // 2, 2 * c, k, p, q, r, 2 * left + 1, stride, pad, groups)
    return replace(convolution, sizes=sizes, workspace_bytes=workspace, across=(1, left))


def packing(call: InPlaceCall) -> PlannedLaunch:
    """The kernel that packs the filters of a forward pass, or unpacks their gradient."""
    a = call.attributes
    unpacks = call.target == targets.CONV_BACKWARD_WEIGHT
    name = "unpack_filter_gradient" if unpacks else "pack_filters"
    left = pairs_before(a["pad"])
    grid = spread(a["k"] * a["r"] * (2 * left + 1) * 2 * CHANNELS)
    return launch("conv_pairs.cu", name, grid, THREADS, s=a["s"], pad=a["pad"], left=left)
