"""From a node of the computation graph to calls on banks: one small function per operation.

Each reads the shapes of its tensors from the memory plan and states operands in the order of the
operation's record (``csrc/operations.h``). The table :data:`LOWERINGS` is complete for the families
it lists; an operation without an entry cannot be lowered in place yet, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.algo.optimizer import LARS
from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType, Region
from renaissance.graph.computation_graph.node import ComputeNode, Node, RangeNode
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.graph.memory_plan import DTensor, MemoryPlan
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS, TYPE_NUMBERS
from renaissance.lowering.calls.in_place import Argument, InPlaceCall, Location
from renaissance.lowering.fused.update import lars_attributes, log_betas, optimizer_attributes
from renaissance.lowering.recipe import Recipe

IMAGES, LABELS, BATCH = Argument("images"), Argument("labels"), Argument("batch")
"""What a step is given from outside: stacked batches, and which of them is its own."""


@dataclass(frozen=True)
class Scene:
    """What every lowering looks things up in.

    Attributes:
        memory: Places and shapes of the variant's tensors.
        recipe: Constants of the algorithms.
        image_dtype: Type of the images that come from outside.
    """

    memory: MemoryPlan
    recipe: Recipe
    image_dtype: DType = DType.FP32

    def tensor(self, node: Node, role: str) -> DTensor:
        """The planned tensor in a role."""
        ref = node.inputs[role] if role in node.inputs else node.outputs[role]
        return self.memory.tensor(ref)

    def at(self, node: Node, role: str) -> Location | None:
        """Where the tensor in a role lies; None if the node has none."""
        ref = node.inputs.get(role) or node.outputs.get(role)
        return None if ref is None else self.place(ref)

    def place(self, ref: Ref) -> Location:
        """Where a tensor lies."""
        t = self.memory.tensor(ref)
        return Location(t.bank, t.offset, t.nbytes, f"{t.region.name} {t.name}")

    def run(self, node: RangeNode, role: str) -> Location | None:
        """The bytes of a run of regions; None if the node has none in that role."""
        run = node.read.get(role) or node.written.get(role)
        return None if run is None else self.span(run)

    def span(self, run: RegionRun) -> Location:
        """The bytes of a run of regions."""
        offset, nbytes = self.memory.span(run)
        return Location(run.bank, offset, nbytes, str(run))

    def layer_index(self, name: str) -> int:
        """Position of a primitive layer in the network, the layer number of its random numbers."""
        return [layer.name for layer in self.recipe.plan.primitives()].index(name)


Lowering = Callable[[Scene, Any], list[InPlaceCall]]


def lower_nodes(scene: Scene, nodes: Iterable[Node]) -> list[InPlaceCall]:
    """The calls of a sequence of nodes.

    Raises:
        PlanError: an operation has no kernel of its own yet.
    """
    calls: list[InPlaceCall] = []
    for node in nodes:
        lowering = LOWERINGS.get(node.op)
        if lowering is None:
            where = f"operation of {node.layer}" if node.layer else "operation"
            fail(
                PlanError, f"{where} in the fused lowering", node.op, f"one of {sorted(LOWERINGS)}"
            )
        calls += lowering(scene, node)
    return calls


def _type(tensor: DTensor) -> int:
    if tensor.dtype not in TYPE_NUMBERS:
        expected = "float32 or float16: the kernels compute in no other type"
        fail(PlanError, f"type of {tensor.name}", tensor.dtype.value, expected)
    return TYPE_NUMBERS[tensor.dtype]


# -- layers ---------------------------------------------------------------------------------------


def _fc_sizes(scene: Scene, node: ComputeNode, w: DTensor, rows: DTensor) -> dict[str, Any]:
    k, c = w.shape
    activation = ACTIVATION_NUMBERS[node.params.get("activation")]
    sizes = {"n": rows.shape[0], "c": c, "k": k}
    return {**sizes, "type": _type(rows), "activation": activation}


def _fc_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = tuple(scene.at(node, role) for role in ("x", "w", "bias", "y", "z"))
    y = scene.tensor(node, "y")
    sizes = _fc_sizes(scene, node, scene.tensor(node, "w"), y)
    sizes |= {"type": _type(scene.tensor(node, "x")), "y_type": _type(y)}
    return [InPlaceCall(targets.FC_FORWARD, operands, sizes, node.layer)]


def _fc_backward_data(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    gate = scene.at(node, "z") or scene.at(node, "y")
    dy, w, dx = (scene.at(node, role) for role in ("dy", "w", "dx"))
    sizes = _fc_sizes(scene, node, scene.tensor(node, "w"), scene.tensor(node, "dy"))
    operands = (dy, None, w, gate, dx, None, None, None)
    return [InPlaceCall(targets.FC_BACKWARD, operands, sizes, node.layer)]


def _fc_backward_weight(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    dy, x, dw, dbias = (scene.at(node, role) for role in ("dy", "x", "dw", "dbias"))
    sizes = _fc_sizes(scene, node, scene.tensor(node, "dw"), scene.tensor(node, "dy"))
    operands = (dy, x, None, None, None, dw, dbias, None)
    return [InPlaceCall(targets.FC_BACKWARD, operands, sizes, node.layer)]


def _elementwise(scene: Scene, node: ComputeNode, role: str) -> dict[str, Any]:
    tensor = scene.tensor(node, role)
    return {"count": tensor.size, "type": _type(tensor)}


def _activation_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = (scene.at(node, "x"), scene.at(node, "y"))
    number = ACTIVATION_NUMBERS[node.params["activation"]]
    sizes = {**_elementwise(scene, node, "x"), "activation": number}
    return [InPlaceCall(targets.ACTIVATION_FORWARD, operands, sizes, node.layer)]


def _activation_backward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    gate = scene.at(node, "z") or scene.at(node, "y")
    number = ACTIVATION_NUMBERS[node.params["activation"]]
    sizes = {**_elementwise(scene, node, "dy"), "activation": number}
    operands = (scene.at(node, "dy"), gate, scene.at(node, "dx"))
    return [InPlaceCall(targets.ACTIVATION_BACKWARD, operands, sizes, node.layer)]


def _dropout_forward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    x = scene.tensor(node, "x")
    roles = ("x", "seed", "applied_steps", "skipped_steps", "y", "mask")
    sizes = {"rows": x.shape[0], "elements": x.size // x.shape[0], "type": _type(x)}
    sizes |= {"layer": scene.layer_index(node.layer)}
    attributes = {**sizes, "p": float(node.params["p"])}
    operands = tuple(scene.at(node, role) for role in roles)
    return [InPlaceCall(targets.DROPOUT_FORWARD, operands, attributes, node.layer)]


def _dropout_backward(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = tuple(scene.at(node, role) for role in ("dy", "mask", "dx"))
    attributes = {**_elementwise(scene, node, "dy"), "p": float(node.params["p"])}
    return [InPlaceCall(targets.DROPOUT_BACKWARD, operands, attributes, node.layer)]


def _copy(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    operands = (scene.at(node, "x"), scene.at(node, "y"), None)
    sizes = {"bytes": scene.tensor(node, "x").nbytes}
    return [InPlaceCall(targets.COPY, operands, sizes, node.layer)]


def _softmax_cross_entropy(scene: Scene, node: ComputeNode) -> list[InPlaceCall]:
    logits = scene.tensor(node, "logits")
    given = ("logits", "labels", "loss_scale")
    roles = (*given, "dlogits", "predicted", "loss", "top1", "top5", "count", "rows")
    sizes = {"n": logits.shape[0], "k": logits.shape[-1], "type": _type(logits)}
    attributes = {**sizes, "smoothing": float(scene.recipe.loss.label_smoothing)}
    trains = "dlogits" in node.outputs
    attributes |= {"gradient_type": _type(scene.tensor(node, "dlogits") if trains else logits)}
    operands = tuple(scene.at(node, role) for role in roles)
    return [InPlaceCall(targets.SOFTMAX_CROSS_ENTROPY, operands, attributes, node.layer)]


# -- whole regions --------------------------------------------------------------------------------


def _transfer(scene: Scene, node: RangeNode) -> list[InPlaceCall]:
    slot = "A" if node.written["target"].first is Region.I_A_LABEL else "B"
    data, label = (
        Ref(Region[f"I_{slot}_DATA"], "images"),
        Ref(Region[f"I_{slot}_LABEL"], "labels"),
    )
    tensor, channels = scene.memory.tensor(data), scene.memory.shape_id.c
    padded = tensor.shape[-1]
    attributes = {"pixels": tensor.size // padded, "channels": channels, "padded_channels": padded}
    types = {"from_type": TYPE_NUMBERS[scene.image_dtype], "type": _type(tensor)}
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
    attributes = {"count": count, "max_abs": max_abs_of(scene.recipe)}
    calls = [InPlaceCall(targets.CHECK_AND_UNSCALE, operands, attributes, target.label)]
    if isinstance(clip, ClipByGlobalNorm):
        partial = scene.at(node, "partial")
        assert partial is not None
        sizes = {"count": count, "max_norm": float(clip.max_norm), "rows": partial.nbytes // 8}
        calls.append(InPlaceCall(targets.CLIP_BY_NORM, (target, partial), sizes, target.label))
    return calls


def max_abs_of(recipe: Recipe) -> float:
    """The bound every gradient is clamped to by itself, 0 for none."""
    return float(recipe.clip.max_abs) if isinstance(recipe.clip, ClipByValue) else 0.0


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
    "fc_forward": _fc_forward,
    "fc_backward_data": _fc_backward_data,
    "fc_backward_weight": _fc_backward_weight,
    "activation_forward": _activation_forward,
    "activation_backward": _activation_backward,
    "dropout_forward": _dropout_forward,
    "dropout_backward": _dropout_backward,
    "copy": _copy,
    "softmax_cross_entropy_forward_backward": _softmax_cross_entropy,
    "softmax_cross_entropy_forward": _softmax_cross_entropy,
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
"""How every operation of the graph becomes calls on banks."""
