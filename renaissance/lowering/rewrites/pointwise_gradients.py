"""A rewrite of calls: the two gradients of a pointwise convolution behind a norm become one call.

Apart, the gradient of its filters reads dy and the convolution's input, and the gradient of the
input, joined with the norm's backward (:mod:`renaissance.lowering.rewrites.pointwise_backward`),
reads dy again and the norm's input, from which it makes the activated map anyway. As one call
(``rn_pointwise_backward``) dy is read once, and nothing reads the activated map any more.

Joined are those whose norm has no shortcut and whose gradient no addend, where the kernel was
faster (:data:`FASTER`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.order import overlap, writes
from renaissance.lowering.launches.pointwise_backward import (
    DSHORTCUT,
    DX,
    DY,
    MASK,
    NORM,
    PARTIAL,
    PRODUCT,
    X,
)
from renaissance.lowering.launches.pointwise_gradients import partial_rows, shape_of
from renaissance.lowering.rewrites.pointwise_backward import pair_at

# Positions of operands (csrc/map_operations.h): of a norm's application, of a filters' gradient.
_SHORTCUT, _Y, _Z = 5, 10, 11
_INPUT, _DY, _DW, _WORKSPACE = range(4)

FEWEST_ROWS = 4096
"""Pixels below which all of it is a matter of launches."""
FASTER = frozenset(
    (
        (256, 64), (16, 32), (24, 96), (24, 144), (32, 144), (32, 192), (64, 192), (64, 384),
        (96, 384), (96, 576), (96, 16),
    )
)  # fmt: skip
"""Channels of dy and x for which one call was faster than two
(``benchmarks/notes_pointwise_gradients.md``)."""


def fuse_pointwise_gradients(calls: Sequence[InPlaceCall]) -> list[InPlaceCall]:
    """Join every two gradients that follow each other and are faster as one.

    The gradient of the input may be joined with the norm that reads it, or still stand before it:
    where only all three together are faster.
    """
    result = list(calls)
    index = 1
    while index < len(result):
        data, behind = result[index], index + 1
        pair = pair_at(result, index)
        if pair is not None and pair.norm == behind and pair.freed is None:
            data, behind = pair.fused, behind + 1
        both = joined(result[:index], data)
        if both is None:
            index += 1
        else:
            result[index - 1 : behind] = [both]
    return result


def joined(before: Sequence[InPlaceCall], data: InPlaceCall) -> InPlaceCall | None:
    """What a call and the last of those before it are as one, if they are such gradients.

    Args:
        before: The calls before it.
        data: The gradient of an input.
    """
    weight = before[-1]
    if not _is_bare(data) or not _is_of_same(weight, data) or not _makes_input(before, data):
        return None
    a = data.attributes
    if a["rows"] < FEWEST_ROWS or (a["k"], a["c"]) not in FASTER or shape_of(a) is None:
        return None
    operands = (*data.operands, weight.operands[_DW], weight.operands[_WORKSPACE])
    both = replace(data, target=targets.POINTWISE_BACKWARD, operands=operands)
    sizes = {**a, "partial_rows": partial_rows(both), "width": weight.attributes["q"]}
    both = replace(both, attributes=sizes)
    return both if both.attributes["partial_rows"] > 0 and _keeps_apart(both) else None


def _is_bare(data: InPlaceCall) -> bool:
    """Whether behind the norm there is nothing but an activation, and dz is wanted for itself."""
    if data.target != targets.POINTWISE_BACKWARD_DATA:
        return False
    more = (*range(NORM + 1, X), *range(X + 5, DX), *range(DSHORTCUT, PARTIAL))
    absent = (*more, *range(PARTIAL + 1, MASK + 1))
    return data.operands[PRODUCT] is not None and not any(data.operands[i] for i in absent)


def _is_of_same(weight: InPlaceCall, data: InPlaceCall) -> bool:
    """Whether a call is the gradient of the filters of the same convolution."""
    if weight.target != targets.CONV_BACKWARD_WEIGHT or weight.operands[_DY] != data.operands[DY]:
        return False
    a = weight.attributes
    window = (a["r"], a["s"], a["stride"], a["pad"], a["groups"], a["type"])
    sizes = (a["n"] * a["p"] * a["q"], a["c"], a["k"])
    same = sizes == tuple(data.attributes[name] for name in ("rows", "c", "k"))
    return window == (1, 1, 1, 0, 1, 1) and same and weight.operands[_WORKSPACE] is not None


def _makes_input(before: Sequence[InPlaceCall], data: InPlaceCall) -> bool:
    """Whether what the filters' gradient reads is the activated norm whose backward this is."""
    place = before[-1].operands[_INPUT]
    if not isinstance(place, Location):
        return False
    makers = (
        call
        for call in reversed(before[:-1])
        if any(overlap(place, other) for other in writes(call))
    )
    maker = next(makers, None)
    if maker is None or maker.target != targets.BATCH_NORM_APPLY:
        return False
    is_its_norm = maker.operands[:_SHORTCUT] == data.operands[X : X + 5]
    is_bare = not any(maker.operands[_SHORTCUT:_Y]) and maker.operands[_Y] == place
    same = maker.attributes["activation"] == data.attributes["activation"]
    return is_its_norm and is_bare and maker.operands[_Z] is None and same


def _keeps_apart(both: InPlaceCall) -> bool:
    """Whether dw and its sums lie where nothing else of the call does."""
    *others, dw, sums = (place for place in both.operands if isinstance(place, Location))
    return not any(
        overlap(place, other) for place in (dw, sums) for other in (*others, dw, sums)
        if other is not place
    )  # fmt: skip
