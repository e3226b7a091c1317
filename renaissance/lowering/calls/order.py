"""What calls read and write, and so which may change places.

The memory plan gives bytes to one tensor after another; two calls that name different tensors may
still be bound to their order. Everything here goes by bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall, Location
from renaissance.lowering.calls.targets import Target

Place = Location | Argument

_ONLY_READ: Mapping[Target, Iterable[int]] = {
    targets.FC_FORWARD: range(3),
    targets.FC_BACKWARD: range(4),
    targets.CONV_FORWARD: range(2),
    targets.CONV_FORWARD_STATISTICS: (0, 1, 4, 5),
    targets.CONV_BACKWARD_DATA: range(2),
    targets.CONV_BACKWARD_DATA_NORM: (0, 1, *range(4, 16), 23, 24),
    targets.CONV_BACKWARD_WEIGHT: range(2),
    targets.POINTWISE_FORWARD: (*range(10), 11, 13, 14),
    targets.DEPTHWISE_CONV_FORWARD: range(2),
    targets.DEPTHWISE_CONV_BACKWARD_DATA: range(2),
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: range(2),
    targets.DEPTHWISE_NORM_FORWARD: (0, 1, 2, 3, 4, 6, 8, 9),
    targets.DEPTHWISE_CONV_BACKWARD: range(14),
    targets.BATCH_NORM_STATISTICS: range(3),
    targets.BATCH_NORM_APPLY: range(10),
    targets.BATCH_NORM_BACKWARD: (*range(13), 20, 21),
    targets.POINTWISE_BACKWARD_DATA: (0, 1, *range(3, 15), 22, 23),
    targets.POINTWISE_BACKWARD: (0, 1, *range(3, 15), 22, 23),
    targets.ADD_FORWARD: range(2),
    targets.MAX_POOL_FORWARD: range(5),
    targets.MAX_POOL_BACKWARD: range(2),
    targets.AVERAGE_POOL_FORWARD: range(1),
    targets.AVERAGE_POOL_BACKWARD: range(1),
    targets.GLOBAL_AVERAGE_POOL_FORWARD: range(1),
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: range(1),
    targets.GAP_FC_BACKWARD_DATA: range(2),
    targets.CHANNEL_PADDING: range(1),
}
"""Operands that a call does not change, by position in its record; of a target that is not here,
every operand counts as changed."""


def reads(call: InPlaceCall) -> tuple[Place, ...]:
    """What a call reads and leaves as it is."""
    return _operands(call, only_read=True)


def writes(call: InPlaceCall) -> tuple[Place, ...]:
    """What a call may change, and may also read."""
    return _operands(call, only_read=False)


def overlap(a: Place, b: Place) -> bool:
    """Whether two operands share a byte."""
    if isinstance(a, Location) and isinstance(b, Location):
        begin, end = max(a.offset, b.offset), min(a.offset + a.nbytes, b.offset + b.nbytes)
        return a.bank is b.bank and begin < end
    return a == b


def may_move(calls: Sequence[InPlaceCall], source: int, target: int) -> bool:
    """Whether a call may run at another position, all others in their order, with the same results.

    Args:
        calls: In order.
        source: Where it is.
        target: Where it would be: before the call that is there now if that comes earlier, behind
            it if later.
    """
    moved = calls[source]
    crossed = calls[target:source] if target < source else calls[source + 1 : target + 1]
    return not any(_depend(moved, other) for other in crossed)


def is_read_later(calls: Sequence[InPlaceCall], index: int, place: Location) -> bool:
    """Whether a call behind ``index`` reads bytes of ``place`` before they are written again.

    What a call of a known target may change counts as written, all of its bytes, and not as read.
    """
    left = [place]
    for call in calls[index + 1 :]:
        read = reads(call) if call.target in _ONLY_READ else writes(call)
        if any(overlap(piece, operand) for piece in left for operand in read):
            return True
        for operand in writes(call):
            left = [rest for piece in left for rest in _without(piece, operand)]
        if not left:
            return False
    return False


def _operands(call: InPlaceCall, *, only_read: bool) -> tuple[Place, ...]:
    kept = set(_ONLY_READ.get(call.target, ()))
    return tuple(
        operand
        for index, operand in enumerate(call.operands)
        if isinstance(operand, (Location, Argument)) and (index in kept) == only_read
    )


def _depend(a: InPlaceCall, b: InPlaceCall) -> bool:
    """Whether one changes what the other touches."""
    return _touch(writes(a), (*reads(b), *writes(b))) or _touch(reads(a), writes(b))


def _touch(some: Iterable[Place], others: Sequence[Place]) -> bool:
    return any(overlap(a, b) for a in some for b in others)


def _without(piece: Location, taken: Place) -> list[Location]:
    """What is left of a piece of a bank where another operand does not lie."""
    if not isinstance(taken, Location) or not overlap(piece, taken):
        return [piece]
    begin, end = piece.offset, piece.offset + piece.nbytes
    spans = ((begin, taken.offset), (taken.offset + taken.nbytes, end))
    return [replace(piece, offset=a, nbytes=b - a) for a, b in spans if a < b]
