"""Rewrites of a train step's calls: the same results with fewer passes over memory.

Each is a function from calls to calls. It recognises a pattern by its operands, and leaves as it
is what it does not recognise. Their order matters: later rewrites expect the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from renaissance.core.types import Bank, Region
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.rewrites.conv3x3_backward import fuse_conv3x3_backward
from renaissance.lowering.rewrites.depthwise import fuse_depthwise, leave_out_unread
from renaissance.lowering.rewrites.depthwise_backward import fuse_depthwise_backward
from renaissance.lowering.rewrites.pointwise import fuse_pointwise
from renaissance.lowering.rewrites.pointwise_backward import fuse_pointwise_backward
from renaissance.lowering.rewrites.pointwise_gradients import fuse_pointwise_gradients
from renaissance.lowering.rewrites.strided_gradients import keep_strided_gradients_small

Calls = list[InPlaceCall]

# Positions of operands in the operations' records (csrc/operations.h).
_BACKWARD_DX, _BACKWARD_DW, _BACKWARD_FLAG = 4, 5, 7
_UPDATE_SCALE, _UPDATE_RAW, _UPDATE_COPY, _UPDATE_AVERAGE = 8, 9, 10, 11


def simplify(scene: Scene, calls: Sequence[InPlaceCall]) -> Calls:
    """All rewrites, one after the other.

    Args:
        scene: Where tensors lie.
        calls: A train step, one call per node of the graph, and the report at its end.
    """
    result = merge_backward(calls)
    result = read_labels_in_their_slot(result)
    result = update_in_one_pass(scene, result)
    result = drop_clears(scene, result)
    result = fuse_conv3x3_backward(result)
    result = fuse_pointwise_gradients(fuse_pointwise_backward(result))
    result = fuse_depthwise_backward(result)
    result = keep_strided_gradients_small(result)
    result = leave_out_unread(fuse_pointwise(fuse_depthwise(result)))
    return merge_ends(result)


def merge_backward(calls: Iterable[InPlaceCall]) -> Calls:
    """The gradients of a layer's weights and of its input, from the same dy, become one call."""
    result: Calls = []
    for call in calls:
        last = result[-1] if result else None
        if last is not None and _are_halves(last, call):
            operands = tuple(a or b for a, b in zip(last.operands, call.operands, strict=True))
            activation = {"activation": call.attributes["activation"]}
            merged = {**last.attributes, **activation}
            result[-1] = replace(call, operands=operands, attributes=merged)
        else:
            result.append(call)
    return result


def _are_halves(weights: InPlaceCall, data: InPlaceCall) -> bool:
    if weights.target != targets.FC_BACKWARD or data.target != targets.FC_BACKWARD:
        return False
    same = weights.where == data.where and weights.operands[0] == data.operands[0]
    return (
        same
        and weights.operands[_BACKWARD_DW] is not None
        and data.operands[_BACKWARD_DX] is not None
    )


def read_labels_in_their_slot(calls: Sequence[InPlaceCall]) -> Calls:
    """A step that fills its own input slot need not move the labels out of the next batch's way."""
    moves = {
        call.operands[1]: call.operands[0]
        for call in calls
        if call.target == targets.COPY and _bank(call.operands[0]) is Bank.INPUT_A
    }
    kept = [c for c in calls if not (c.target == targets.COPY and c.operands[1] in moves)]
    return [replace(c, operands=tuple(moves.get(o, o) for o in c.operands)) for c in kept]


def update_in_one_pass(scene: Scene, calls: Calls) -> Calls:
    """Cast, check, unscale, clip, average and copy become part of the optimizer's pass.

    Possible where one optimizer call moves all weights and no joint norm must be known before it.
    Whether all gradients are finite must be known, though. In a network of fully connected layers
    those raise the flag themselves; else one pass reads the gradients as they were written. The
    loss scale must not move before the optimizer has read it, so the counters advance after it.
    """
    updates = [call for call in calls if call.target == targets.OPTIMIZER]
    checks = [call for call in calls if call.target == targets.CHECK_AND_UNSCALE]
    is_whole = len(updates) == len(checks) == 1
    if not is_whole or _targets(calls) & {targets.LARS_UPDATE, targets.CLIP_BY_NORM}:
        return calls
    update, check = updates[0], checks[0]
    producers = _that_raise_the_flag(scene, calls)
    merged = {c for c in calls if _is_weight_cast(c) or c.target == targets.EMA_UPDATE}
    wanted = _updated_in_one_pass(scene, calls, update, check)
    result: Calls = []
    counters: Calls = []
    for call in calls:
        if call in merged or (call == check and producers):
            continue
        if call == check:
            result.append(_check_finite(wanted, check))
        elif call.target == targets.ADVANCE_COUNTERS:
            counters.append(call)
        elif call in producers:
            result.append(_with(call, {_BACKWARD_FLAG: check.operands[2]}))
        elif call == update:
            result += [wanted, *counters]
            counters = []
        else:
            result.append(call)
    return result


def _that_raise_the_flag(scene: Scene, calls: Calls) -> Calls:
    """The makers of all gradients, if every one of them can raise the flag; else none."""
    producers = [c for c in calls if c.target == targets.FC_BACKWARD and c.operands[_BACKWARD_DW]]
    weights = list(scene.recipe.plan.weights())
    matrices = [name for name, spec, _ in weights if spec.group.has_compute_copy]
    others = [name for name, spec, _ in weights if spec.group.name.startswith("BN")]
    return producers if len(producers) == len(matrices) and not others else []


def _check_finite(update: InPlaceCall, check: InPlaceCall) -> InPlaceCall:
    """Reads the gradients that the update will read, and raises the flag."""
    g, raw = _gradients_read(update)
    attributes = {"count": g.nbytes // 4, "raw_count": 0 if raw is None else raw.nbytes // 2}
    return InPlaceCall(targets.CHECK_FINITE, (g, raw, check.operands[2]), attributes, check.where)


def _gradients_read(update: InPlaceCall) -> tuple[Location, Location | None]:
    """What an optimizer call reads gradients from: those of matrices may come in fp16."""
    g, raw = update.operands[1], update.operands[_UPDATE_RAW]
    assert isinstance(g, Location)
    if not isinstance(raw, Location):
        return g, None
    return replace(g, nbytes=4 * update.attributes["decay_from"]), raw


def _updated_in_one_pass(
    scene: Scene, calls: Calls, update: InPlaceCall, check: InPlaceCall
) -> InPlaceCall:
    extra: dict[int, Any] = {_UPDATE_SCALE: check.operands[1]}
    attributes = {"max_abs": scene.max_abs}
    for call in calls:
        if call.target == targets.EMA_UPDATE:
            extra[_UPDATE_AVERAGE] = call.operands[0]
            attributes["ema_decay"] = call.attributes["decay"]
    if any(_is_weight_cast(call) for call in calls):
        extra[_UPDATE_RAW] = _span(scene, Region.G_FC_WEIGHT_FP16, Region.G_DEEP_CONV_FP16)
        extra[_UPDATE_COPY] = _span(scene, Region.A_FC_WEIGHT, Region.A_DEEP_CONV)
    return _with(update, extra, attributes)


def drop_clears(scene: Scene, calls: Calls) -> Calls:
    """Gradients that are written whole before anyone reads them need not be cleared first.

    What is never written (padding between slots, gradients nobody reads) was zero from the start.
    """
    gradients = [t for t in scene.memory.tensors.values() if t.region.name.startswith("G_")]
    made = {o.offset for call in calls if call.target not in _ON_REGIONS for o in _runs(call)}
    casts = [o for c in calls if c.target == targets.CAST for o in c.operands[1:] if o in _runs(c)]
    read = [o for call in calls for o in _runs_read(call)]
    for tensor in gradients:
        is_made = tensor.offset in made or any(_holds(run, tensor.offset) for run in casts)
        if not is_made and any(_holds(run, tensor.offset) for run in read):
            return calls
    return [c for c in calls if not (c.target == targets.CLEAR and c.where.startswith("G_"))]


_ON_REGIONS = frozenset(
    {
        targets.CLEAR,
        targets.CAST,
        targets.CHECK_AND_UNSCALE,
        targets.CHECK_FINITE,
        targets.CLIP_BY_NORM,
        targets.OPTIMIZER,
        targets.LARS_NORMS,
        targets.LARS_UPDATE,
    }
)
"""What works on runs of gradients; every other call makes the gradients it names, each whole."""


def _runs(call: InPlaceCall) -> list[Location]:
    """Gradients among a call's operands."""
    return [o for o in call.operands if isinstance(o, Location) and o.label.startswith("G_")]


def _runs_read(call: InPlaceCall) -> list[Location]:
    if call.target not in _ON_REGIONS or call.target == targets.CLEAR:
        return []
    if call.target == targets.OPTIMIZER:
        return [run for run in _gradients_read(call) if run is not None]
    return _runs(call)[:1] if call.target == targets.CAST else _runs(call)


def _holds(run: Location, offset: int) -> bool:
    return run.offset <= offset < run.offset + run.nbytes


def merge_ends(calls: Calls) -> Calls:
    """The batch and the scalars in one launch; the sums, the report and the counters in one."""
    first = [c for c in calls if c.target in (targets.LOAD_BATCH, targets.SET_STEP_SCALARS)]
    order = (targets.ACCUMULATE, targets.REPORT_METRICS, targets.ADVANCE_COUNTERS)
    last = [c for target in order for c in calls if c.target == target]
    if [c.target for c in first] != [targets.LOAD_BATCH, targets.SET_STEP_SCALARS]:
        return calls
    if [c.target for c in last] != list(order) or calls.index(last[2]) < _index_of_update(calls):
        return calls
    begin = _joined(targets.BEGIN_STEP, first, "begin of step")
    end = _joined(targets.END_STEP, last, "end of step")
    return [begin, *(c for c in calls if c not in first and c not in last), end]


def _index_of_update(calls: Calls) -> int:
    return max(i for i, call in enumerate(calls) if call.target == targets.OPTIMIZER)


def _joined(target: Target, calls: Calls, where: str) -> InPlaceCall:
    operands = tuple(operand for call in calls for operand in call.operands)
    attributes = {name: value for call in calls for name, value in call.attributes.items()}
    return InPlaceCall(target, operands, attributes, where)


def _with(
    call: InPlaceCall, operands: dict[int, Any], attributes: dict[str, Any] | None = None
) -> InPlaceCall:
    new = tuple(operands.get(i, operand) for i, operand in enumerate(call.operands))
    return replace(call, operands=new, attributes={**call.attributes, **(attributes or {})})


def _bank(operand: Any) -> Bank | None:
    return operand.bank if isinstance(operand, Location) else None


def _targets(calls: Calls) -> set[Target]:
    return {call.target for call in calls}


def _is_weight_cast(call: InPlaceCall) -> bool:
    if call.target != targets.CAST or not isinstance(call.operands[0], Location):
        return False
    return call.operands[0].label.startswith(("G_", "W_"))


def _span(scene: Scene, first: Region, last: Region) -> Location:
    begin, end = scene.memory.region(first), scene.memory.region(last)
    label = f"{first.name}..{last.name}"
    return Location(first.bank, begin.offset, end.end - begin.offset, label)
