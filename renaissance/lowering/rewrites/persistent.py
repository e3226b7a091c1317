"""Many train steps as one launch: an MLP's chain of calls, recognised and replaced.

The persistent kernel (``csrc/kernels/mlp_persistent.cu``) keeps weights and moments on chip from
step to step. What it can replace is a train step that consists of fully connected layers, the loss
and one optimizer pass; everything it needs to know stands in the calls of that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Bank, Region
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import TYPE_NUMBERS
from renaissance.lowering.calls.in_place import Argument, InPlaceCall, Location, Operand, Workspace
from renaissance.lowering.calls.scene import IMAGES, LABELS, TABLE, Scene
from renaissance.lowering.launches.mlp_plan import MlpPlan

INDICES, VALUES = Argument("indices"), Argument("values")
"""Rows of the data set that a batch takes, and what the 256 bytes of its images stand for."""
INPUT_TYPES = {**{dtype.value: number for dtype, number in TYPE_NUMBERS.items()}, "uint8": 2}
_ACTIVATIONS = range(4)  # none, relu, relu6, leaky_relu
_ENDS = frozenset(
    {
        targets.LOAD_BATCH,
        targets.SET_STEP_SCALARS,
        targets.CLEAR,
        targets.CAST,
        targets.CHECK_AND_UNSCALE,
        targets.CHECK_FINITE,
        targets.COPY,
        targets.ACCUMULATE,
        targets.REPORT_METRICS,
        targets.ADVANCE_COUNTERS,
    }
)
"""What stays by itself in a step that something else keeps from being merged: not the reason."""


def reasons_against(scene: Scene, calls: Sequence[InPlaceCall]) -> list[str]:
    """Why the persistent kernel cannot run a train step, in words; empty if it can.

    Args:
        scene: What the step was lowered with.
        calls: The simplified calls of one step.
    """
    layers = [call for call in calls if call.target == targets.FC_FORWARD]
    names = [call.target.name for call in calls]
    expected = _chain(len(layers))
    if names != expected:
        strange = [str(c) for c in calls if c.target.name not in expected and c.target not in _ENDS]
        what = strange[0] if strange else f"{len(calls)} calls"
        return [f"the step has {what}, expected fully connected layers, loss and one optimizer"]
    found = MlpPlan(_widths(layers), layers[0].attributes["n"]).problems()
    hidden = {call.attributes["activation"] for call in layers[:-1]}
    if any(not call.attributes["type"] for call in layers):
        found.append("activations in fp32, expected mixed precision")
    if len(hidden) > 1 or not hidden <= set(_ACTIVATIONS) or layers[-1].attributes["activation"]:
        found.append("activations, expected one of none, relu, relu6 and leaky_relu throughout")
    if any(call.operands[2] is None for call in layers):
        found.append("a layer without bias")
    if any(call.attributes["channels"] != call.attributes["padded_channels"] for call in calls[:1]):
        found.append("channels are padded")
    if scene.recipe.ema is not None:
        found.append("a moving average of the weights")
    return found


def check_persistent(scene: Scene, calls: Sequence[InPlaceCall]) -> None:
    """Refuse a train step that the persistent kernel cannot run.

    Raises:
        PlanError: says what stands against it.
    """
    problems = reasons_against(scene, calls)
    if problems:
        fail(PlanError, "loop='persistent'", "; ".join(problems), "a step that the kernel covers")


def _chain(layers: int) -> list[str]:
    forward, backward = [targets.FC_FORWARD] * layers, [targets.FC_BACKWARD] * layers
    middle = [targets.SOFTMAX_CROSS_ENTROPY]
    end = [targets.OPTIMIZER, targets.END_STEP]
    return [t.name for t in (targets.BEGIN_STEP, *forward, *middle, *backward, *end)]


def _widths(layers: Sequence[InPlaceCall]) -> tuple[int, ...]:
    return (layers[0].attributes["c"], *(call.attributes["k"] for call in layers))


def persistent_call(
    scene: Scene, calls: Sequence[InPlaceCall], steps: int, images: str, *, indexed: bool
) -> InPlaceCall:
    """One call for many steps.

    Args:
        scene: What the step was lowered with.
        calls: The simplified calls of one step.
        steps: How many steps, each a batch of the images given.
        images: Type of the images: ``"float32"``, ``"float16"`` or ``"uint8"``.
        indexed: Whether batches are rows of a data set, by indices ``(steps, batch)``; otherwise
            images and labels are the batches, one after the other.

    Raises:
        PlanError: the kernel cannot run this step; the message says why.
    """
    check_persistent(scene, calls)
    memory = scene.memory
    whole = Location(Bank.PERSISTENT, 0, memory.bank_bytes(Bank.PERSISTENT), "PERSISTENT")
    layers = [call for call in calls if call.target == targets.FC_FORWARD]
    attributes = _attributes(scene, calls, layers)
    plan = MlpPlan(_widths(layers), layers[0].attributes["n"])
    given = (IMAGES, LABELS, INDICES if indexed else None, VALUES if images == "uint8" else None)
    operands = (*given, TABLE, Workspace(plan.work_bytes), whole, *_scalars(calls))
    tensors = tuple(place for call in layers for place in _tensors(scene, call))
    attributes |= {"steps": steps, "input_type": INPUT_TYPES[images]}
    target = targets.MLP_TRAIN_STEPS
    return InPlaceCall(target, operands + tensors, attributes, f"{steps} steps of an MLP")


def _scalars(calls: Sequence[InPlaceCall]) -> tuple[Operand, ...]:
    """Scalars and sums, in the order of the record, from the calls that set them in a chain."""
    table, applied, lr, first, second, flag = calls[0].operands[5:]
    end = calls[-1].operands
    result, total = end[0], end[1]
    skipped, clean, run, scale = end[-4:]
    assert isinstance(result, Location) and isinstance(total, Location)
    sums = [o for o in end[3:7] if isinstance(o, Location)]
    moved = [
        Location(total.bank, total.offset + s.offset - result.offset, s.nbytes, f"sum of {s.label}")
        for s in sums
    ]
    return (table, lr, scale, first, second, applied, skipped, clean, run, flag, *sums, *moved)


def _tensors(scene: Scene, call: InPlaceCall) -> tuple[Operand, ...]:
    """Master, moments and fp16 copy of a layer's weight; master and moments of its bias."""
    half, bias = call.operands[1], call.operands[2]
    assert isinstance(half, Location) and isinstance(bias, Location)
    name = half.label.split(" ", 1)[1]

    def places(name: str) -> list[Operand]:
        group = scene.recipe.groups[name]
        slots = scene.recipe.optimizer.slots
        wanted = {"W": True, "M": slots.first_moment, "V": slots.second_moment}
        return [_place(scene, group.region(r), name) if w else None for r, w in wanted.items()]

    return (*places(name), half, *places(bias.label.split(" ", 1)[1]))


def _place(scene: Scene, region: Region, name: str) -> Location:
    t = scene.memory.tensor((region, name))
    return Location(t.bank, t.offset, t.nbytes, f"{region.name} {name}")


def _attributes(
    scene: Scene, calls: Sequence[InPlaceCall], layers: Sequence[InPlaceCall]
) -> dict[str, Any]:
    update = next(call for call in calls if call.target == targets.OPTIMIZER).attributes
    loss = next(call for call in calls if call.target == targets.SOFTMAX_CROSS_ENTROPY).attributes
    optimizer = scene.recipe.optimizer
    betas = [getattr(optimizer, name, 0.0) for name in ("beta1", "beta2")]
    kept = ("momentum", "beta1", "beta2", "rest1", "eps", "weight_decay", "max_abs", "rule")
    end = ("maximum", "minimum", "growth_interval")
    return {
        **{name: update[name] for name in kept},
        **{name: calls[-1].attributes[name] for name in end},
        "rest2_root": sqrt(1 - betas[1]),
        "betas": np.array(betas, np.float64),
        "table_length": calls[0].attributes["table_length"],
        "smoothing": loss["smoothing"],
        "widths": np.array(_widths(layers), np.int64),
        "batch": layers[0].attributes["n"],
        "activation": layers[0].attributes["activation"],
    }
