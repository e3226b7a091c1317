"""A rewrite of calls: the gradient of a pointwise convolution's input, and the norm that reads it.

Apart, the gradient is written, and read again by the first pass of the norm's backward; as one call
(``rn_pointwise_backward_data``) that pass works on it while it is on the chip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.order import is_read_later, overlap, reads, writes
from renaissance.lowering.launches.pointwise_backward import planned_shape, row_blocks

Calls = list[InPlaceCall]

# Positions of operands (csrc/map_operations.h): of a convolution's backward, and of a norm's.
_DY, _W, _DX = range(3)
_NORM_DY, _GATE, _ARGMAX, _SHORTCUT_MEAN, _DSHORTCUT, _PARTIAL, _ADDEND = 0, 1, 2, 11, 16, 19, 20

_ACTIVATIONS = frozenset((0, 1, 2))
"""None, ReLU and ReLU6: their slopes are 0 or 1, so dz needs no rounding."""
FEWEST_ROWS = 4096
"""Pixels below which all of it is a matter of launches."""
MOST_CHANNELS = 128
"""Channels of dy above which the product takes longer than the maps."""
FASTER = frozenset(((256, 64), (256, 512), (256, 1024), (384, 64), (192, 32)))
"""Channels of dy and x for which it was faster nevertheless."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two calls that can become one.

    Attributes:
        convolution: Position of the gradient of a convolution's input.
        norm: Position of the norm's backward behind it.
        fused: What both become, at the norm's position.
        freed: Where the second reader's gradient lies and where it must be put instead, because
            it is made where the convolution still reads; None if it may stay.
    """

    convolution: int
    norm: int
    fused: InPlaceCall
    freed: tuple[Location, Location] | None


def fuse_pointwise_backward(calls: Sequence[InPlaceCall]) -> Calls:
    """Join every pair whose shape the kernel is faster for."""
    result = list(calls)
    index = 0
    while index < len(result):
        pair = pair_at(result, index)
        if pair is None or not is_faster(pair.fused):
            index += 1
            continue
        if pair.freed is not None:
            for i in range(index, pair.norm):
                result[i] = _renamed(result[i], *pair.freed)
        result[pair.norm] = pair.fused
        del result[index]
    return result


def is_faster(call: InPlaceCall) -> bool:
    """Whether one kernel beats the library's convolution and a pass of the norm.

    It does where the product costs little beside the maps: few channels of dy, and more of x
    (``benchmarks/notes_pointwise_backward.md``).

    Args:
        call: One of ``rn_pointwise_backward_data``.
    """
    a = call.attributes
    k, c = a["k"], a["c"]
    is_short = k <= MOST_CHANNELS and k < c
    return bool(a["rows"] >= FEWEST_ROWS and (is_short or (k, c) in FASTER))


def pairs(calls: Sequence[InPlaceCall]) -> Iterator[Pair]:
    """All pairs of a step, whatever their shapes."""
    found = (pair_at(calls, index) for index in range(len(calls)))
    return (pair for pair in found if pair is not None)


def pair_at(calls: Sequence[InPlaceCall], index: int) -> Pair | None:
    """The pair of which a call is the convolution, or None.

    The convolution runs later than it would: what it reads must still be there, and nobody else
    may want its result.
    """
    convolution = calls[index]
    if not _is_pointwise(convolution):
        return None
    product = convolution.operands[_DX]
    assert isinstance(product, Location)
    behind = _next_touching(calls, index, product)
    if behind is None or not _is_norm_of(calls[behind], product):
        return None
    fused = _fused(convolution, calls[behind], product)
    keeps_product = fused.operands[2] == product and _is_plain(calls[behind])
    if not keeps_product and is_read_later(calls, behind, product):
        return None
    if planned_shape(fused) is None or _spoils_itself(fused):
        return None
    between = calls[index + 1 : behind]
    if not any(_writes_into(call, convolution) for call in between):
        return Pair(index, behind, fused, None)
    return _with_other_freed(calls, index, behind, fused, product)


def _with_other_freed(
    calls: Sequence[InPlaceCall], index: int, behind: int, fused: InPlaceCall, product: Location
) -> Pair | None:
    """The pair with the other gradient put where the convolution's result is no longer needed."""
    other = fused.operands[2 + _ADDEND]
    if fused.operands[2] is not None or not isinstance(other, Location):
        return None
    maker = _next_touching(calls, index, other)
    if maker is None or maker >= behind or _next_touching(calls, maker, other) != behind:
        return None
    made = calls[maker]
    is_made_whole = other not in reads(made) and other in writes(made)
    if not is_made_whole or is_read_later(calls, behind, other):
        return None
    moved = [_renamed(call, other, product) for call in calls[index + 1 : behind]]
    if any(_writes_into(call, calls[index]) for call in moved):
        return None
    operands = tuple(product if o == other else o for o in fused.operands)
    return Pair(index, behind, replace(fused, operands=operands), (other, product))


def _is_pointwise(call: InPlaceCall) -> bool:
    a = call.attributes
    if call.target != targets.CONV_BACKWARD_DATA or a["type"] != 1:
        return False
    window = (a["r"], a["s"], a["stride"], a["pad"], a["groups"])
    return window == (1, 1, 1, 0, 1) and a["c"] % 8 == 0 and a["k"] % 8 == 0


def _is_norm_of(call: InPlaceCall, product: Location) -> bool:
    """Whether a call is a norm's backward that reads a gradient, whole and once."""
    if call.target != targets.BATCH_NORM_BACKWARD or call.operands[_ARGMAX] is not None:
        return False
    if call.attributes["activation"] not in _ACTIVATIONS or call.attributes["type"] != 1:
        return False
    touching = [i for i, o in enumerate(call.operands) if _shares(o, product)]
    return touching in ([_NORM_DY], [_ADDEND]) and _same(call.operands[touching[0]], product)


def _is_plain(norm: InPlaceCall) -> bool:
    """Whether dz is dy, so that a place of dz still holds dy."""
    return norm.attributes["activation"] == 0 and norm.operands[_ADDEND] is None


def _fused(convolution: InPlaceCall, norm: InPlaceCall, product: Location) -> InPlaceCall:
    """Both as one call. dz stays where dshortcut is dz, else at the product's place."""
    operands: list[Operand] = list(norm.operands)
    is_addend = _same(operands[_ADDEND], product)
    if is_addend:
        operands[_ADDEND] = operands[_NORM_DY]
    is_stashed = operands[_SHORTCUT_MEAN] is None and operands[_DSHORTCUT] is not None
    operands[_NORM_DY] = None if is_stashed else product
    attributes: Mapping[str, Any] = {**norm.attributes, "k": convolution.attributes["k"]}
    both = (convolution.operands[_DY], convolution.operands[_W], *operands)
    fused = InPlaceCall(targets.POINTWISE_BACKWARD_DATA, both, attributes, norm.where)
    shape = planned_shape(fused)
    if shape is None:
        return fused
    return replace(fused, attributes={**attributes, "partial_rows": row_blocks(attributes, shape)})


def _spoils_itself(fused: InPlaceCall) -> bool:
    """Whether its first kernel writes where others of its blocks still read."""
    stash = fused.operands[2] or fused.operands[2 + _DSHORTCUT]
    written = (stash, fused.operands[2 + _PARTIAL])
    return any(_shares(fused.operands[i], o) for i in (_DY, _W) for o in written)


def _writes_into(call: InPlaceCall, convolution: InPlaceCall) -> bool:
    return any(_shares(convolution.operands[i], place) for i in (_DY, _W) for place in writes(call))


def _next_touching(calls: Sequence[InPlaceCall], index: int, place: Location) -> int | None:
    """The first call behind a position with an operand that shares a byte with a place."""
    return next(
        (
            i
            for i in range(index + 1, len(calls))
            if any(_shares(operand, place) for operand in calls[i].operands)
        ),
        None,
    )


def _renamed(call: InPlaceCall, old: Location, new: Location) -> InPlaceCall:
    operands = tuple(replace(new, label=old.label) if o == old else o for o in call.operands)
    return replace(call, operands=operands)


def _shares(a: Any, b: Any) -> bool:
    return isinstance(a, Location) and isinstance(b, Location) and overlap(a, b)


def _same(a: Any, b: Location) -> bool:
    return isinstance(a, Location) and replace(a, label="") == replace(b, label="")
