"""A rewrite of calls: the backward of a depthwise convolution and of the norms on its two sides.

Apart, the norm behind the convolution writes the gradient of its input, both gradients of the
convolution read that, the one of the input is written, and the norm before the convolution reads
it twice. As one call (``rn_depthwise_conv_backward``) the convolution makes the gradient it needs
from what the norm behind it reads, makes its own input from what the norm before it reads, and
leaves the sums that this norm needs. So neither gradient is stored, and nothing reads the activated
map any more. What stays of the norms is the sums of the one and the second pass of the other.

Fused are 3 x 3 convolutions of fp16 maps with one pixel of padding and stride 1 or 2, of an even
number of channels: for every such shape of MobileNetV2 the one pass was faster, with the norms and
without (``benchmarks/notes_depthwise_backward.md``). A norm joins where it stands next to the
convolution, has no shortcut and its gradient no other reader. Where the workspace was left out
(at most 256 output pixels in all) nothing is fused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.order import is_read_later, overlap, writes
from renaissance.lowering.launches.depthwise_backward import pieces_of
from renaissance.lowering.launches.pointwise_backward import NORM

Calls = list[InPlaceCall]

# Positions of operands (csrc/map_operations.h): of a norm's backward and of its application.
_DY, _GATE, _ARGMAX, _X, _SHORTCUT, _DX, _DGAMMA, _DBETA = 0, 1, 2, 3, 8, 13, 14, 15
_DSHORTCUT, _PARTIAL, _ADDEND, _MASK = 16, 19, 20, 21
_NORM = slice(4, 8)
_APPLY_SHORTCUT, _APPLY_Y = 5, 10
_JOINED = (targets.POINTWISE_BACKWARD_DATA, targets.POINTWISE_BACKWARD)
_NORM_AT = {targets.BATCH_NORM_BACKWARD: 0, **dict.fromkeys(_JOINED, NORM)}
"""Where the operands of a norm's backward begin in the calls that hold one."""
_NO_NORM: tuple[Operand, ...] = (None,) * 4

_ACTIVATIONS = frozenset((0, 1, 2))
"""None, ReLU and ReLU6, whose slopes are 0 or 1."""


@dataclass(frozen=True, slots=True)
class Site:
    """A depthwise convolution's two gradients, next to each other in a step.

    Attributes:
        first: Position of the earlier one.
        data: The gradient of its input.
        weight: The gradient of its weights.
        behind: The backward of the norm behind the convolution, right before them, or None.
        before: That of the norm before the convolution, right behind them, or None.
    """

    first: int
    data: InPlaceCall
    weight: InPlaceCall
    behind: InPlaceCall | None
    before: InPlaceCall | None


def fuse_depthwise_backward(calls: Sequence[InPlaceCall]) -> Calls:
    """Make one call of every convolution's gradients, with as much around them as can join."""
    result = list(calls)
    for index in range(len(result) - 1, 0, -1):
        site = site_at(result, index)
        if site is None:
            continue
        for choice in _choices(site):
            joined = _joined(choice)
            if joined is not None:
                _replace(result, choice, *joined)
                break
    return result


def site_at(calls: Sequence[InPlaceCall], index: int) -> Site | None:
    """The site whose second gradient a call is; None if it is none."""
    pair = calls[index - 1 : index + 1]
    found = {call.target: call for call in pair}
    data = found.get(targets.DEPTHWISE_CONV_BACKWARD_DATA)
    weight = found.get(targets.DEPTHWISE_CONV_BACKWARD_WEIGHT)
    if data is None or weight is None or not _fits(data, weight):
        return None
    behind = calls[index - 2] if index > 1 and _is_behind(calls, index, data) else None
    is_last = index + 1 == len(calls)
    before = None if is_last or not _is_before(calls, index, data, weight) else calls[index + 1]
    return Site(index - 1, data, weight, behind, before)


def _fits(data: InPlaceCall, weight: InPlaceCall) -> bool:
    """Whether both are gradients of one convolution, of a shape that the kernel is made for."""
    a = data.attributes
    sizes = all(a[name] == weight.attributes[name] for name in a)
    window = (a["r"], a["s"], a["pad"]) == (3, 3, 1) and a["stride"] in (1, 2)
    same = data.operands[0] == weight.operands[1] and isinstance(weight.operands[3], Location)
    return sizes and window and same and a["type"] == 1 and a["c"] % 2 == 0


def _is_plain_norm(call: InPlaceCall) -> bool:
    """Whether a call is a norm's backward, with nothing but an activation behind the norm."""
    if call.target not in _NORM_AT or call.attributes["type"] != 1:
        return False
    more = (_GATE, _ARGMAX, *range(_SHORTCUT, _DX), *range(_DSHORTCUT, _PARTIAL), _ADDEND, _MASK)
    operands = _norm_operands(call)
    is_bare = all(operands[i] is None for i in more)
    wanted = all(operands[i] is not None for i in (_DY, _DX, _DGAMMA, _DBETA, _PARTIAL))
    return is_bare and wanted and call.attributes["activation"] in _ACTIVATIONS


def _norm_operands(call: InPlaceCall) -> tuple[Operand, ...]:
    """Those of a norm's backward, which may be part of another call."""
    return call.operands[_NORM_AT.get(call.target, 0) :]


def _slope_of(norm: InPlaceCall) -> int:
    """The activation whose slope the gradient a norm reads has yet to be multiplied with."""
    return 0 if norm.target in _JOINED else int(norm.attributes["activation"])


def _is_behind(calls: Sequence[InPlaceCall], index: int, data: InPlaceCall) -> bool:
    """Whether the call before the two makes the gradient they read, and only for them."""
    norm, dy = calls[index - 2], data.operands[0]
    if not _is_plain_norm(norm) or _norm_operands(norm)[_DX] != dy:
        return False
    return isinstance(dy, Location) and not is_read_later(calls, index, dy)


def _is_before(
    calls: Sequence[InPlaceCall], index: int, data: InPlaceCall, weight: InPlaceCall
) -> bool:
    """Whether the call behind the two alone reads the gradient they make, and is the backward of
    the norm that made the convolution's input."""
    norm, dx, x = calls[index + 1], data.operands[2], weight.operands[0]
    if norm.target != targets.BATCH_NORM_BACKWARD or not _is_plain_norm(norm):
        return False
    if norm.operands[_DY] != dx:
        return False
    if not isinstance(dx, Location) or is_read_later(calls, index + 1, dx):
        return False
    makers = (call for call in reversed(calls[:index]) if _touches(writes(call), x))
    maker = next(makers, None)
    if maker is None or maker.target != targets.BATCH_NORM_APPLY:
        return False
    is_its_norm = maker.operands[:_APPLY_SHORTCUT] == (norm.operands[_X], *norm.operands[_NORM])
    is_bare = not any(maker.operands[_APPLY_SHORTCUT:_APPLY_Y]) and maker.operands[_APPLY_Y] == x
    activations = {call.attributes["activation"] for call in (maker, norm)}
    return is_its_norm and is_bare and len(activations) == 1


def _choices(site: Site) -> Iterator[Site]:
    """The site with both norms, with either, and with none."""
    for behind, before in ((1, 1), (0, 1), (1, 0), (0, 0)):
        has_both = (site.behind or not behind) and (site.before or not before)
        if has_both:
            yield replace(
                site,
                behind=site.behind if behind else None,
                before=site.before if before else None,
            )


def _joined(site: Site) -> tuple[InPlaceCall, InPlaceCall | None, InPlaceCall | None] | None:
    """The one call, and what is left of the norms behind and before; None if it spoils itself."""
    a: dict[str, Any] = dict(site.data.attributes)
    behind, before = site.behind, site.before
    partial, sums = site.weight.operands[3], before.operands[_PARTIAL] if before else None
    rows = [pieces_of(a), _rows_in(partial, a["r"] * a["s"] * a["c"])]
    a["partial_rows"] = min([*rows, _rows_in(sums, 2 * a["c"])] if before else rows)
    if a["partial_rows"] < 1:
        return None
    a["y_activation"] = _slope_of(behind) if behind else 0
    a["x_activation"] = _slope_of(before) if before else 0
    made: tuple[Operand, ...] = (site.data.operands[0], None, *_NO_NORM, None, None)
    if behind:
        given = _norm_operands(behind)
        made = (given[_DY], given[_X], *given[_NORM], given[_DGAMMA], given[_DBETA])
    read = (
        (before.operands[_X], *before.operands[_NORM])
        if before else (site.weight.operands[0], *_NO_NORM)
    )  # fmt: skip
    dx = before.operands[_DX] if before else site.data.operands[2]
    results = (dx, site.weight.operands[2], partial, sums)
    operands = (*made, site.data.operands[1], *read, *results)
    fused = InPlaceCall(targets.DEPTHWISE_CONV_BACKWARD, operands, a, site.data.where)
    if not _keeps_apart(fused):
        return None
    return fused, behind and _sums_of(behind), before and _rest_of(before, a["partial_rows"])


def _sums_of(norm: InPlaceCall) -> InPlaceCall:
    """A norm's backward without the gradient of its input."""
    return _with(norm, {_NORM_AT[norm.target] + _DX: None})


def _rest_of(norm: InPlaceCall, pieces: int) -> InPlaceCall:
    """A norm's backward behind its first pass: dz lies where dx will."""
    rest = _with(norm, {_DY: norm.operands[_DX]})
    more = {"activation": 0, "partial_rows": pieces, "summed": 1}
    return replace(rest, attributes={**rest.attributes, **more})


def _replace(
    calls: Calls, site: Site, fused: InPlaceCall, behind: InPlaceCall | None,
    before: InPlaceCall | None,
) -> None:  # fmt: skip
    if before is not None:
        calls[site.first + 2] = before
    calls[site.first : site.first + 2] = [fused]
    if behind is not None:
        calls[site.first - 1] = behind


def _keeps_apart(call: InPlaceCall) -> bool:
    """Whether nothing it writes lies where it reads, or writes something else."""
    places = [place for place in call.operands if isinstance(place, Location)]
    return not any(
        overlap(place, other) for place in writes(call) for other in places if other is not place
    )


def _rows_in(place: Operand, row: int) -> int:
    """How many rows of so many floats a place holds."""
    return place.nbytes // (4 * row) if isinstance(place, Location) else 0


def _touches(places: Sequence[Any], place: Operand) -> bool:
    return isinstance(place, Location) and any(overlap(place, other) for other in places)


def _with(call: InPlaceCall, new: dict[int, Operand]) -> InPlaceCall:
    operands = tuple(new.get(i, operand) for i, operand in enumerate(call.operands))
    return replace(call, operands=operands)
