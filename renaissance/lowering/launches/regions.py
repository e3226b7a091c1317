"""Which CUDA kernels work on runs of regions, and on a step's batch and scalars."""

from __future__ import annotations

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.planned import THREADS, Plan, PlannedLaunch, kernel, spread
from renaissance.lowering.launches.tiles import MULTIPROCESSORS

UNROLL = 4
"""Vectors that a thread of a pass which only reads has in flight."""


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
