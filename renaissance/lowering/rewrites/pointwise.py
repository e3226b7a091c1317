"""A norm and the 1x1 convolution behind it become one call, which reads the norm's output no more.

The separate calls write that map and read it again; joined, a tile of it is multiplied while it is
still in registers. Backward needs it later, so it is stored all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Operand
from renaissance.lowering.calls.order import may_move, overlap, reads, writes
from renaissance.lowering.launches.pointwise import (
    LEAST_SHARED_BYTES,
    blocks_along,
    prologue_of,
    shape_of,
)

# Positions of operands in the records of the calls that are joined (csrc/map_operations.h).
_APPLY_Y, _APPLY_Z, _APPLY_MASK = 10, 11, 12
_CONV_X, _CONV_W, _CONV_Y, _CONV_WORKSPACE, _CONV_PREV_MEAN, _CONV_PARTIAL = 0, 1, 2, 3, 4, 10


_MANY_ROWS = 1 << 15
_FEW_VALUES = 1 << 16


def fuse_pointwise(calls: Sequence[InPlaceCall]) -> list[InPlaceCall]:
    """Join what :func:`pays` says is faster joined, where the calls in between allow it.

    Args:
        calls: A train step, masks for the backward of norms among the operands of those already.

    Returns:
        The step with the same results and fewer passes over memory.
    """
    result = list(calls)
    for index in reversed(range(len(calls))):
        if not is_pointwise(result[index]):
            continue
        norm = norm_before(result, index)
        place = None if norm is None else _place(result, norm, index)
        both = joined(result, norm, index)
        alone = joined(result, None, index)
        if norm is not None and place is not None and pays(both):
            rest = [call for i, call in enumerate(result) if i not in (norm, index)]
            result = [*rest[:place], both, *rest[place:]]
        elif pays(alone):
            result[index] = alone
    return result


def is_pointwise(call: InPlaceCall) -> bool:
    """Whether it is a 1x1 convolution with statistics in half precision."""
    if call.target != targets.CONV_FORWARD_STATISTICS:
        return False
    a = call.attributes
    window = (a["r"], a["s"], a["stride"], a["pad"], a["groups"])
    return window == (1, 1, 1, 0, 1) and a["type"] == a["y_type"] == 1


def norm_before(calls: Sequence[InPlaceCall], convolution: int) -> int | None:
    """The place of the norm that makes a convolution's input and leaves nothing else but a mask."""
    x = calls[convolution].operands[_CONV_X]
    for index in reversed(range(convolution)):
        call = calls[index]
        if call.target == targets.BATCH_NORM_APPLY and call.operands[_APPLY_Y] == x:
            return index if call.operands[_APPLY_Z] is None else None
    return None


def joined(calls: Sequence[InPlaceCall], norm: int | None, convolution: int) -> InPlaceCall:
    """The one call that stands for a norm and a convolution, or for the convolution alone."""
    last = calls[convolution]
    a = last.attributes
    operands: tuple[Operand, ...] = (last.operands[_CONV_X], *[None] * _APPLY_Y)
    mask, activation = None, 0
    if norm is not None:
        first = calls[norm]
        operands, mask = first.operands[: _APPLY_Y + 1], first.operands[_APPLY_MASK]
        activation = first.attributes["activation"]
    operands += (last.operands[_CONV_W], last.operands[_CONV_Y])
    operands += (*last.operands[_CONV_PREV_MEAN:], mask)
    sizes = {name: a[name] for name in ("c", "k", "type", "momentum", "eps")}
    sizes |= {"rows": a["n"] * a["p"] * a["q"], "activation": activation}
    call = InPlaceCall(targets.POINTWISE_FORWARD, operands, sizes, last.where)
    shape = shape_of(a["c"], a["k"], prologue_of(call))
    most = a["partial_rows"]
    blocks = 1 if shape is None else blocks_along(sizes["rows"], a["k"], shape, most)
    return replace(call, attributes={**sizes, "partial_rows": blocks})


def pays(call: InPlaceCall) -> bool:
    """Whether the joined call is faster than the separate ones (benchmarks/notes_pointwise.md).

    It is where memory is the limit: on maps of many pixels and with filters of few values. Where
    there is no norm to join, it beats the library only where filters are smaller still.
    """
    a, prologue = call.attributes, prologue_of(call)
    shape = shape_of(a["c"], a["k"], prologue, LEAST_SHARED_BYTES)
    few = _FEW_VALUES if prologue else _FEW_VALUES // 4
    return shape is not None and a["rows"] >= _MANY_ROWS and a["c"] * a["k"] < few


def _place(calls: Sequence[InPlaceCall], norm: int, convolution: int) -> int | None:
    """Where both may run as one, counted without the two; None if nowhere.

    Side by side they must be able to stand, and then neither may write what the other reads or
    wrote, but for the map between them.
    """
    both = joined(calls, norm, convolution)
    if any(overlap(a, b) for a in writes(both) for b in reads(both)):
        return None
    if _may_move(calls, convolution, norm + 1):
        return norm
    return convolution - 1 if _may_move(calls, norm, convolution - 1) else None


def _may_move(calls: Sequence[InPlaceCall], source: int, target: int) -> bool:
    """:func:`may_move`, where two calls may also use the same scratch memory in turn."""
    first, last = min(source, target), max(source, target) + 1
    some = list(calls[first:last])
    bare = [_without_scratch(call) for call in some]
    there, to = source - first, target - first
    alone = [*some[:there], bare[there], *some[there + 1 :]]
    others = [*bare[:there], some[there], *bare[there + 1 :]]
    return may_move(alone, there, to) and may_move(others, there, to)


def _without_scratch(call: InPlaceCall) -> InPlaceCall:
    if call.target != targets.CONV_FORWARD_STATISTICS:
        return call
    scratch = (_CONV_WORKSPACE, _CONV_PARTIAL)
    kept = tuple(None if i in scratch else o for i, o in enumerate(call.operands))
    return replace(call, operands=kept)
