"""Which CUDA kernels the loss launches."""

from __future__ import annotations

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Kernel, Target
from renaissance.lowering.launches.planned import (
    MOST_BLOCKS,
    THREADS,
    Attributes,
    Plan,
    PlannedLaunch,
    kernel,
)
from renaissance.lowering.launches.tiles import ceil_div

ROWS_IN_ONE_BLOCK = 512
"""Up to so many rows one block computes the loss alone, and no second launch adds the rows up."""
WARPS_IN_ONE_BLOCK = 32
"""The same with many classes, where a row takes a warp."""


def _softmax(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    few_classes = a["k"] <= 32
    if a["n"] <= (ROWS_IN_ONE_BLOCK if few_classes else WARPS_IN_ONE_BLOCK):
        threads = ceil_div(a["n"], 32) * 32 if few_classes else 1024
        return [PlannedLaunch(_of_loss(a, "cross_entropy", 1024), (1, 1, 1), threads)]
    # with many classes small blocks: a batch's few hundred warps reach all multiprocessors
    threads, rows = (THREADS, THREADS) if few_classes else (64, 2)
    grid = (min(MOST_BLOCKS, ceil_div(a["n"], rows)), 1, 1)
    return [
        PlannedLaunch(_of_loss(a, "cross_entropy", threads), grid, threads),
        PlannedLaunch(_of_loss(a, "sum", 1024), (1, 1, 1), 1024),
    ]


def _of_loss(a: Attributes, name: str, threads: int) -> Kernel:
    constants = {"half": a["type"], "gradient_half": a["gradient_type"], "k": a["k"]}
    return kernel("softmax.cu", f"softmax_{name}", **constants, threads=threads)


PLANS: dict[Target, Plan] = {targets.SOFTMAX_CROSS_ENTROPY: _softmax}
