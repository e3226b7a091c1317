"""A rewrite of calls: the gradient that a strided convolution of one tap hands to its input.

It is zero but on every so many-th row and column: three quarters of it at a stride of two. Where a
norm's backward adds it to the other reader's gradient, the zeros need be neither written nor read.
What is stored is the gradient of those pixels alone, and that is a convolution of stride one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.order import is_read_later, overlap

_DX = 2
_ADDEND = {targets.BATCH_NORM_BACKWARD: 20, targets.POINTWISE_BACKWARD_DATA: 22}
"""Position of the other reader's gradient (csrc/map_operations.h)."""


def keep_strided_gradients_small(calls: Sequence[InPlaceCall]) -> list[InPlaceCall]:
    """Leave out the zeros of every strided gradient that has one reader, and is its addend."""
    result = list(calls)
    for index, call in enumerate(calls):
        whole = call.operands[_DX] if _is_strided(call) else None
        if not isinstance(whole, Location):
            continue
        reader = _only_reader(result, index, whole)
        if reader is None:
            continue
        a = call.attributes
        pixels = a["n"] * a["p"] * a["q"]
        small = replace(whole, nbytes=whole.nbytes // (a["n"] * a["h"] * a["w"]) * pixels)
        dense = {"h": a["p"], "w": a["q"], "stride": 1}
        grid = {name: a[name] for name in ("n", "h", "w", "p", "q", "stride")}
        result[index] = _with(call, _DX, small, dense)
        at = _ADDEND[result[reader].target]
        result[reader] = _with(result[reader], at, small, grid)
    return result


def _is_strided(call: InPlaceCall) -> bool:
    if call.target != targets.CONV_BACKWARD_DATA:
        return False
    a = call.attributes
    return (a["r"], a["s"], a["pad"]) == (1, 1, 0) and a["stride"] > 1


def _only_reader(calls: Sequence[InPlaceCall], index: int, place: Location) -> int | None:
    """Position of the call that takes a gradient as its addend, if nobody else reads it."""
    for at in range(index + 1, len(calls)):
        call = calls[at]
        touching = [
            i
            for i, operand in enumerate(call.operands)
            if isinstance(operand, Location) and overlap(operand, place)
        ]
        if not touching:
            continue
        found = call.operands[touching[0]]
        if touching != [_ADDEND.get(call.target)] or not isinstance(found, Location):
            return None
        is_whole = replace(found, label="") == replace(place, label="")
        is_free = not call.attributes["kernel"] and not call.attributes["stride"]
        return at if is_whole and is_free and not is_read_later(calls, at, place) else None
    return None


def _with(
    call: InPlaceCall, position: int, operand: Location, attributes: dict[str, int]
) -> InPlaceCall:
    operands = (*call.operands[:position], operand, *call.operands[position + 1 :])
    return replace(call, operands=operands, attributes={**call.attributes, **attributes})
