"""Which CUDA kernels a call launches: source, constants, grid, threads and shared memory.

One small function per custom call, from its attributes alone; so every kernel a program needs can
be named, compiled and counted on a machine without a GPU. Widths of layers become constants of the
kernel; the number of rows stays a run-time argument, so that all variants share kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from renaissance.core.errors import PlanError, fail
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Kernel, Target
from renaissance.lowering.launches.tiles import (
    FLOAT_THREADS,
    MULTIPROCESSORS,
    Tile,
    backward_tile,
    ceil_div,
    float_tile,
    forward_tile,
)

THREADS = 256
MOST_BLOCKS = 1024
"""Blocks of an element-wise kernel: enough to fill any device, each thread then loops."""
UNROLL = 4
"""Vectors that a thread of a pass which only reads has in flight."""
ROWS_IN_ONE_BLOCK = 512
"""Up to so many rows one block computes the loss alone, and no second launch adds the rows up."""
WARPS_IN_ONE_BLOCK = 32
"""The same with many classes, where a row takes a warp."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A kernel and how it is launched, before it is compiled.

    Attributes:
        kernel: Source, name and constants.
        grid: Blocks in x, y and z.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory of a block.
        cluster: Blocks of a cluster; above 1, all blocks of the grid must run at once.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0
    cluster: int = 1


Attributes = Mapping[str, Any]
Plan = Callable[[InPlaceCall], list[PlannedLaunch]]


def launches_of(call: InPlaceCall) -> list[PlannedLaunch]:
    """The launches of a call, in order.

    Raises:
        PlanError: there is no CUDA kernel for it.
    """
    plan = PLANS.get(call.target)
    if plan is None:
        fail(PlanError, "custom call on CUDA", call.target.name, f"one of {sorted(_names())}")
    return plan(call)


def kernel(source: str, name: str, **constants: int) -> Kernel:
    """A kernel with its constants as macros: ``half=1`` defines ``RN_HALF``."""
    macros = tuple(sorted((f"RN_{key.upper()}", int(value)) for key, value in constants.items()))
    return Kernel(source, f"{name}_kernel", macros)


def spread(count: int, lanes: int = 1, most: int = MOST_BLOCKS) -> tuple[int, int, int]:
    """A grid for ``count`` elements, ``lanes`` of them a thread."""
    return (max(1, min(most, ceil_div(count, THREADS * lanes))), 1, 1)


def _names() -> list[str]:
    return [target.name for target in PLANS]


# -- fully connected ------------------------------------------------------------------------------


def fc_forward(call: InPlaceCall, tile: Tile | None = None) -> list[PlannedLaunch]:
    """Launch of ``rn_fc_forward``; a tile other than the chosen one only to measure it."""
    a = call.attributes
    sizes = {"half": a["type"], "y_half": a["y_type"], "c": a["c"], "k": a["k"]}
    sizes["activation"] = a["activation"]
    if a["type"]:
        tile = tile or forward_tile(a["n"], a["c"], a["k"])
        shared, threads = tile.shared_bytes(True, True), tile.threads
        sizes |= tile.constants
        rows, columns = tile.m, tile.n
    else:
        simple = float_tile(a["n"], a["k"])
        shared, threads = simple.shared_bytes, FLOAT_THREADS
        sizes |= simple.constants
        rows, columns = simple.m, simple.n
    found = kernel("fc_forward.cu", "fc_forward", **sizes, shared_bytes=shared)
    grid = (ceil_div(a["k"], columns), ceil_div(a["n"], rows), 1)
    return [PlannedLaunch(found, grid, threads, shared)]


def fc_backward(call: InPlaceCall, tile: Tile | None = None) -> list[PlannedLaunch]:
    """Launch of ``rn_fc_backward``; a tile other than the chosen one only to measure it."""
    a = call.attributes
    wants = {name: call.operands[i] is not None for name, i in (("dx", 4), ("dw", 5), ("dbias", 6))}
    gated = call.operands[3] is not None and wants["dx"]
    sizes = {"half": a["type"], "c": a["c"], "k": a["k"], **wants}
    sizes["activation"] = a["activation"] if gated else 0
    if a["type"]:
        tile = tile or backward_tile(a["n"], a["c"], a["k"], data=wants["dx"])
        shared = max(tile.shared_bytes(True, False), tile.shared_bytes(False, False))
        rows, columns, threads = tile.m, tile.n, tile.threads
        sizes |= tile.constants
    else:
        simple = float_tile(a["k"] + (a["n"] if wants["dx"] else 0), a["c"])
        rows, columns, threads, shared = simple.m, simple.n, FLOAT_THREADS, simple.shared_bytes
        sizes |= simple.constants
    across = ceil_div(a["c"], columns)
    blocks = across * ceil_div(a["n"], rows) * wants["dx"]
    blocks += across * ceil_div(a["k"], rows) * wants["dw"]
    blocks += ceil_div(a["k"], 32) * wants["dbias"]
    found = kernel("fc_backward.cu", "fc_backward", **sizes, shared_bytes=shared)
    return [PlannedLaunch(found, (blocks, 1, 1), threads, shared)]


# -- element by element ---------------------------------------------------------------------------


def _lanes(a: Attributes) -> int:
    return 8 if a["type"] else 4


def _activation(name: str) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        a = call.attributes
        found = kernel("activation.cu", name, half=a["type"], activation=a["activation"])
        return [PlannedLaunch(found, spread(a["count"], _lanes(a)), THREADS)]

    return plan


def _dropout_forward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    found = kernel("dropout.cu", "dropout_forward", half=a["type"])
    quads = a["rows"] * ceil_div(a["elements"], 4)
    return [PlannedLaunch(found, spread(quads), THREADS)]


def _dropout_backward(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    found = kernel("dropout.cu", "dropout_backward", half=a["type"])
    return [PlannedLaunch(found, spread(a["count"]), THREADS)]


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


# -- whole regions --------------------------------------------------------------------------------


def _region(source: str, name: str, size: str, lanes: int) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        grid = spread(call.attributes[size], lanes)
        return [PlannedLaunch(kernel(source, name), grid, THREADS)]

    return plan


def _check_finite(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    grid = spread(max(a["count"] // 4, a["raw_count"] // 8), UNROLL, most=6 * MULTIPROCESSORS)
    return [PlannedLaunch(kernel("region.cu", "check_finite"), grid, THREADS)]


def _clip_by_norm(call: InPlaceCall) -> list[PlannedLaunch]:
    a = call.attributes
    norm, clip = kernel("region.cu", "gradient_norm"), kernel("region.cu", "clip_by_norm")
    # as many blocks as there is workspace for their sums
    blocks = (a["rows"], 1, 1)
    return [PlannedLaunch(norm, blocks, THREADS), PlannedLaunch(clip, spread(a["count"]), THREADS)]


def _load_batch(name: str) -> Plan:
    def plan(call: InPlaceCall) -> list[PlannedLaunch]:
        elements = call.attributes["pixels"] * call.attributes["padded_channels"]
        return [PlannedLaunch(kernel("step.cu", name), spread(elements), THREADS)]

    return plan


def _optimizer(call: InPlaceCall) -> list[PlannedLaunch]:
    found = kernel("optimizer.cu", "optimizer", rule=call.attributes["rule"])
    # whole waves: six blocks of this size fit a multiprocessor at once
    grid = spread(call.attributes["count"], 4, most=6 * MULTIPROCESSORS)
    return [PlannedLaunch(found, grid, THREADS)]


def _lars_norms(call: InPlaceCall) -> list[PlannedLaunch]:
    tensors = len(call.attributes["counts"])
    return [PlannedLaunch(kernel("lars.cu", "lars_norms"), (tensors, 1, 1), 1024)]


def _lars_update(call: InPlaceCall) -> list[PlannedLaunch]:
    counts = call.attributes["counts"]
    grid = (spread(int(max(counts)))[0], len(counts), 1)
    return [PlannedLaunch(kernel("lars.cu", "lars_update"), grid, THREADS)]


def _scalars(name: str, threads: int = 1) -> Plan:
    return lambda call: [PlannedLaunch(kernel("step.cu", name), (1, 1, 1), threads)]


PLANS: dict[Target, Plan] = {
    targets.FC_FORWARD: fc_forward,
    targets.FC_BACKWARD: fc_backward,
    targets.ACTIVATION_FORWARD: _activation("activation_forward"),
    targets.ACTIVATION_BACKWARD: _activation("activation_backward"),
    targets.DROPOUT_FORWARD: _dropout_forward,
    targets.DROPOUT_BACKWARD: _dropout_backward,
    targets.SOFTMAX_CROSS_ENTROPY: _softmax,
    targets.CLEAR: _region("region.cu", "clear", "bytes", 16),
    targets.COPY: _region("region.cu", "copy", "bytes", 16),
    targets.CAST: _region("region.cu", "cast", "count", 4),
    targets.CHECK_AND_UNSCALE: _region("region.cu", "check_and_unscale", "count", 1),
    targets.CHECK_FINITE: _check_finite,
    targets.CLIP_BY_NORM: _clip_by_norm,
    targets.EMA_UPDATE: _region("region.cu", "ema_update", "count", 1),
    targets.ACCUMULATE: _region("step.cu", "accumulate", "count", 1),
    targets.OPTIMIZER: _optimizer,
    targets.LARS_NORMS: _lars_norms,
    targets.LARS_UPDATE: _lars_update,
    targets.LOAD_BATCH: _load_batch("load_batch"),
    targets.BEGIN_STEP: _load_batch("begin_step"),
    targets.END_STEP: _scalars("end_step", THREADS),
    targets.SET_STEP_SCALARS: _scalars("set_step_scalars"),
    targets.ADVANCE_COUNTERS: _scalars("advance_counters"),
    targets.REPORT_METRICS: _scalars("report_metrics"),
}
"""How every custom call is launched on CUDA."""
