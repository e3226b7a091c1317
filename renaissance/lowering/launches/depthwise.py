"""Which CUDA kernels depthwise convolutions launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.packs import launch, pack_width, strip_grid, tile_of
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch
from renaissance.lowering.launches.tiles import ceil_div

FILTER_FLOATS = 72
"""Filters, or their gradients, that a thread of a depthwise convolution keeps in registers."""
STRIP_STEPS = 29
"""Steps of a strip of a depthwise convolution, at most: each strip reads a window's rows first."""


@dataclass(frozen=True, slots=True)
class DepthwiseShape:
    """How a depthwise kernel is cut up; measured in ``benchmarks/notes_memory_kernels.md``.

    Attributes:
        width: Channels of a thread, at most.
        across: Output pixels of a thread along a row; of a data gradient, times the stride.
        ahead: Steps that rows are read before their use.
        unroll: Steps of the loop that are written out.
        blocks: Blocks that must fit on a multiprocessor, which bounds the registers.
    """

    width: int = 4
    across: int = 1
    ahead: int = 1
    unroll: int = 1
    blocks: int = 2


DEPTHWISE = {
    ("forward", 1): DepthwiseShape(across=2),
    ("data", 1): DepthwiseShape(across=2),
    ("data", 2): DepthwiseShape(across=2),
}
"""By kind and stride; what is not here has a plain :class:`DepthwiseShape`."""


def _depthwise(a: Any, kind: str) -> dict[str, int]:
    """Constants of a depthwise kernel."""
    shape = DEPTHWISE.get((kind, a["stride"]), DepthwiseShape())
    fits = max(w for w in (8, 4, 2, 1) if w * a["r"] * a["s"] <= FILTER_FLOATS or w == 1)
    width = pack_width(a["c"], a["type"], min(fits, shape.width))
    constants = {"half": a["type"], "c": a["c"], "width": width, "rows": STRIP_STEPS}
    constants |= {name: a[name] for name in ("r", "s", "stride", "pad")}
    constants |= {name: getattr(shape, name) for name in ("ahead", "unroll", "blocks")}
    return constants | {"across": shape.across * (a["stride"] if kind == "data" else 1)}


def _depthwise_pass(name: str, kind: str, steps: Callable[[Any], int], along: str) -> Plan:
    """Plan of the forward pass or the data gradient: a thread to a pack of a strip."""

    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        constants = _depthwise(a, kind) | {"data": int(kind == "data")}
        down = ceil_div(steps(a), constants["rows"])
        strips = a["n"] * down * ceil_div(a[along], constants["across"])
        grid = strip_grid(a["c"] // constants["width"], strips)
        return [launch("depthwise_conv.cu", name, grid, THREADS, **constants)]

    return plan


depthwise_forward = _depthwise_pass("depthwise_conv_forward", "forward", lambda a: a["p"], "q")
depthwise_data = _depthwise_pass(
    "depthwise_conv_backward_data",
    "data",
    lambda a: ceil_div(a["h"] + a["pad"], a["stride"]),
    "w",
)


def depthwise_weight(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launches of ``rn_depthwise_conv_backward_weight``: pieces of the sums, then their sum."""
    a = call.attributes
    taps = a["r"] * a["s"]
    constants = _depthwise(a, "weight")
    constants["tile"], tiles = tile_of(a["c"] // constants["width"])
    source, pieces = "depthwise_conv_weight.cu", a["partial_rows"]
    grid = (pieces, tiles, 1)
    first = launch(source, "depthwise_conv_backward_weight", grid, THREADS, **constants)
    if pieces == 1:
        return [first]
    sums = (ceil_div(taps * a["c"], 32), 1, 1)
    return [first, launch(source, "depthwise_conv_sum", sums, 1024, **constants)]


PLANS: dict[Target, Plan] = {
    targets.DEPTHWISE_CONV_FORWARD: depthwise_forward,
    targets.DEPTHWISE_CONV_BACKWARD_DATA: depthwise_data,
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: depthwise_weight,
}
