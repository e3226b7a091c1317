"""A rewrite of calls: a depthwise convolution normalises what it reads and sums what it writes.

Between the two 1 x 1 convolutions of an inverted residual the separate calls write the activated
map, read it, and read the convolution's output once more for its statistics. Fused, the map before
the norm is read once and the output written once; the activated map is written along as long as
something else reads it.

Fused are 3 x 3 convolutions of fp16 maps with one pixel of padding and stride 1 or 2, of an even
number of channels. The norm joins them where it directly precedes, has no shortcut and leaves
nothing but its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.order import is_read_later, overlap, writes
from renaissance.lowering.launches.depthwise_norm import ACTIVATED, cut_of
from renaissance.lowering.launches.pointwise import Y

Calls = list[InPlaceCall]

_APPLY_SHORTCUT, _APPLY_Y = 5, 10
_LEAVES = {targets.DEPTHWISE_NORM_FORWARD: ACTIVATED, targets.POINTWISE_FORWARD: Y}
"""Calls that need not write the activated map, and where they have it."""


def fuse_depthwise(calls: Sequence[InPlaceCall]) -> Calls:
    """Norm, depthwise convolution and statistics that follow each other become one call."""
    result: Calls = []
    for call in calls:
        convolution = result[-1] if result else None
        if convolution is None or not _sums_output_of(call, convolution):
            result.append(call)
            continue
        before = result[-2] if len(result) > 1 else None
        norm = before if before is not None and _makes_input_of(before, convolution) else None
        fused = _fused(norm, convolution, call)
        if norm is not None and not _keeps_apart(fused):
            norm, fused = None, _fused(None, convolution, call)
        if _keeps_apart(fused):
            del result[-2 if norm is not None else -1 :]
            result.append(fused)
        else:
            result.append(call)
    return result


def leave_out_unread(calls: Sequence[InPlaceCall]) -> Calls:
    """An activated map that no later call reads is not written.

    Args:
        calls: A whole step, after every rewrite that could take a reader away.
    """
    result = list(calls)
    for i, call in enumerate(result):
        if call.target not in _LEAVES:
            continue
        at = _LEAVES[call.target]
        y = call.operands[at]
        if isinstance(y, Location) and not is_read_later(result, i, y):
            operands = list(call.operands)
            operands[at] = None
            result[i] = replace(call, operands=tuple(operands))
    return result


def _sums_output_of(call: InPlaceCall, convolution: InPlaceCall) -> bool:
    if call.target != targets.BATCH_NORM_STATISTICS:
        return False
    if convolution.target != targets.DEPTHWISE_CONV_FORWARD:
        return False
    a = convolution.attributes
    window = (a["r"], a["s"], a["pad"]) == (3, 3, 1) and a["stride"] in (1, 2)
    fits = window and a["type"] == 1 and a["c"] % 2 == 0
    return fits and call.operands[0] == convolution.operands[2] and call.operands[7] is not None


def _makes_input_of(call: InPlaceCall, convolution: InPlaceCall) -> bool:
    if call.target != targets.BATCH_NORM_APPLY or call.attributes["type"] != 1:
        return False
    more = (*call.operands[_APPLY_SHORTCUT:_APPLY_Y], *call.operands[_APPLY_Y + 1 :])
    return call.operands[_APPLY_Y] == convolution.operands[0] and not any(more)


def _fused(
    norm: InPlaceCall | None, convolution: InPlaceCall, statistics: InPlaceCall
) -> InPlaceCall:
    x, w, y = convolution.operands
    read: tuple[Operand, ...] = (x, None, None, None, None, None)
    activation = 0
    if norm is not None:
        read = (*norm.operands[:5], norm.operands[_APPLY_Y])
        activation = norm.attributes["activation"]
    sizes, partial = convolution.attributes, statistics.operands[7]
    assert isinstance(partial, Location)
    constants = {name: statistics.attributes[name] for name in ("momentum", "eps")}
    cut = cut_of(sizes, partial.nbytes // (8 * sizes["c"]))
    attributes = {**sizes, **constants, **cut.attributes, "activation": activation}
    operands = (*read, w, y, *statistics.operands[1:])
    target = targets.DEPTHWISE_NORM_FORWARD
    return InPlaceCall(target, operands, attributes, convolution.where)


def _keeps_apart(call: InPlaceCall) -> bool:
    """Whether nothing it writes lies where it reads, or writes something else."""
    places = [place for place in call.operands if isinstance(place, Location)]
    return not any(
        overlap(place, other) for place in writes(call) for other in places if other is not place
    )
