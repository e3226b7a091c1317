"""From a node of the computation graph to calls on banks: runs of regions, and a step's scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.algo.clip import ClipByGlobalNorm
from renaissance.algo.optimizer import LARS
from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType, Region
from renaissance.graph.computation_graph.node import ComputeNode, RangeNode
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import TYPE_NUMBERS
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import BATCH, IMAGES, LABELS, Scene
from renaissance.lowering.fused.operands import Lowering, planned_type
from renaissance.lowering.fused.update import lars_attributes, log_betas, optimizer_attributes


def _transfer(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    slot = "A" if node.written["target"].first is Region.I_A_LABEL else "B"
    data, label = (
        Ref(Region[f"I_{slot}_DATA"], "images"),
        Ref(Region[f"I_{slot}_LABEL"], "labels"),
    )
    tensor, channels = scene.memory.tensor(data), scene.memory.shape_id.c
    padded = tensor.shape[-1]
    attributes = {"pixels": tensor.size // padded, "channels": channels, "padded_channels": padded}
    types = {"from_type": TYPE_NUMBERS[scene.image_dtype], "type": planned_type(tensor)}
    operands = (IMAGES, LABELS, BATCH, scene.place(data), scene.place(label))
    attributes |= types | {"rows": tensor.shape[0]}
    return [InPlaceCall(targets.LOAD_BATCH, operands, attributes, f"transfer {slot}")]


def _clear(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    target = scene.run(node, "target")
    assert target is not None
    return [InPlaceCall(targets.CLEAR, (target,), {"bytes": target.nbytes}, target.label)]


def _cast(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    source, target = node.read["source"], node.written["target"]
    operands = (scene.span(source), scene.span(target))
    types = [_run_type(scene, run) for run in (source, target)]
    count = operands[0].nbytes // types[0].itemsize
    attributes = {"from_type": TYPE_NUMBERS[types[0]], "to_type": TYPE_NUMBERS[types[1]]}
    where = f"{source} to {target}"
    if operands[1].nbytes != count * types[1].itemsize:
        fail(
            PlanError, f"elements of {target}", operands[1].nbytes // types[1].itemsize, str(count)
        )
    return [InPlaceCall(targets.CAST, operands, {**attributes, "count": count}, where)]


def _run_type(scene: Scene, run: RegionRun) -> DType:
    return next(t.dtype for region in run.regions for t in scene.memory.tensors_in(region))


def _nothing(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    """All-reduces have nothing to do on one device."""
    return []


def _check_and_unscale(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    target = scene.run(node, "target")
    assert target is not None
    count, clip = target.nbytes // 4, scene.recipe.clip
    operands = (target, scene.at(node, "loss_scale"), scene.at(node, "nan_flag"))
    attributes = {"count": count, "max_abs": scene.max_abs}
    calls = [InPlaceCall(targets.CHECK_AND_UNSCALE, operands, attributes, target.label)]
    if isinstance(clip, ClipByGlobalNorm):
        partial = scene.at(node, "partial")
        assert partial is not None
        sizes = {"count": count, "max_norm": float(clip.max_norm), "rows": partial.nbytes // 8}
        calls.append(InPlaceCall(targets.CLIP_BY_NORM, (target, partial), sizes, target.label))
    return calls


def _update_statistics(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    source, target = scene.run(node, "source"), scene.run(node, "target")
    assert source is not None
    operands = (source, target, scene.at(node, "nan_flag"))
    return [InPlaceCall(targets.COPY, operands, {"bytes": source.nbytes}, source.label)]


def _optimizer_update(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    w = scene.run(node, "w")
    assert w is not None
    runs = (scene.run(node, role) for role in ("w", "g", "m", "v"))
    names = ("lr", "bias_correction1", "bias_correction2", "nan_flag")
    operands = (*runs, *(scene.at(node, name) for name in names), None, None, None, None)
    decaying = [scene.memory.region(region) for region in node.params["decay"]]
    begins = [span.offset for span in decaying if span.nbytes]
    decay_from = (min(begins) - w.offset if begins else w.nbytes) // 4
    attributes = {"count": w.nbytes // 4, "decay_from": decay_from}
    attributes |= optimizer_attributes(scene.recipe.optimizer)
    return [InPlaceCall(targets.OPTIMIZER, operands, attributes, w.label)]


def _tensor_table(scene: Scene, run: RegionRun) -> dict[str, Any]:
    """Where a region's tensors begin, in units of 128 elements, and how many they hold."""
    begin = scene.span(run).offset
    tensors = list(scene.memory.tensors_in(run.first))
    places = [(t.offset - begin) // 4 for t in tensors]
    return {
        "begins": np.array([place // 128 for place in places], np.int64),
        "counts": np.array([t.size for t in tensors], np.int64),
    }


def _lars_norms(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    operands = tuple(scene.run(node, role) for role in ("w", "g", "n"))
    table = _tensor_table(scene, node.read["w"])
    return [InPlaceCall(targets.LARS_NORMS, operands, table, str(node.read["w"]))]


def _lars_update(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    runs = tuple(scene.run(node, role) for role in ("w", "g", "m", "n"))
    operands = (*runs, scene.at(node, "lr"), scene.at(node, "nan_flag"))
    rule = scene.recipe.optimizer
    assert isinstance(rule, LARS)
    attributes = {**lars_attributes(rule), **_tensor_table(scene, node.read["w"])}
    return [InPlaceCall(targets.LARS_UPDATE, operands, attributes, str(node.read["w"]))]


def _ema_update(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    target = scene.run(node, "target")
    assert target is not None and scene.recipe.ema is not None
    operands = (target, scene.run(node, "source"), scene.at(node, "nan_flag"))
    attributes = {"count": target.nbytes // 4, "decay": float(scene.recipe.ema)}
    return [InPlaceCall(targets.EMA_UPDATE, operands, attributes, target.label)]


def _accumulate(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    source = scene.run(node, "source")
    assert source is not None
    operands = (source, scene.run(node, "target"), scene.at(node, "nan_flag"))
    return [InPlaceCall(targets.ACCUMULATE, operands, {"count": source.nbytes // 4}, source.label)]


# -- scalars --------------------------------------------------------------------------------------


def _set_step_scalars(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    roles = ("lr_table", "applied_steps", "lr", "bias_correction1", "bias_correction2", "nan_flag")
    length = scene.tensor(node, "lr_table").size
    attributes = {"table_length": length, **log_betas(scene.recipe.optimizer)}
    operands = tuple(scene.at(node, role) for role in roles)
    return [InPlaceCall(targets.SET_STEP_SCALARS, operands, attributes, "step scalars")]


def _advance_counters(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    roles = ("nan_flag", "applied_steps", "skipped_steps", "clean_steps", "overflow_run")
    rule = scene.recipe.loss_scale
    bounds = {"maximum": float(rule.maximum), "minimum": float(rule.minimum)}
    operands = tuple(scene.at(node, role) for role in (*roles, "loss_scale"))
    attributes = {**bounds, "growth_interval": rule.growth_interval}
    return [InPlaceCall(targets.ADVANCE_COUNTERS, operands, attributes, "counters")]


LOWERINGS: dict[str, Lowering] = {
    "transfer": _transfer,
    "clear": _clear,
    "cast": _cast,
    "all_reduce_sum": _nothing,
    "all_reduce_mean": _nothing,
    "check_and_unscale": _check_and_unscale,
    "update_statistics": _update_statistics,
    "optimizer_update": _optimizer_update,
    "lars_norms": _lars_norms,
    "lars_update": _lars_update,
    "ema_update": _ema_update,
    "accumulate": _accumulate,
    "set_step_scalars": _set_step_scalars,
    "advance_counters": _advance_counters,
}
