"""A rewrite of calls: the input gradient of a 3x3 convolution, and the norm that reads it.

Apart, the gradient is written, and read again by the first pass of the norm's backward. As one call
(``rn_conv_backward_data_norm``) a kernel of ours does that pass while the gradient is on the chip;
where a library runs the convolution, the call is both, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.order import is_read_later, overlap
from renaissance.lowering.launches.conv3x3 import (
    FEWEST_JOINED_TILES,
    conv3x3_shape,
    is_conv3x3,
)

# Positions of operands (csrc/map_operations.h): of a convolution's backward, and of a norm's.
_DY, _W, _DX, _WORKSPACE = range(4)
_NORM_DY, _X, _DX_OF_NORM, _PARTIAL = 0, 3, 13, 19
_NEEDED = (_NORM_DY, _X, *range(4, 8), _DX_OF_NORM, 14, 15, _PARTIAL)
"""A norm with nothing but an activation behind it has these operands and no other."""

_ACTIVATIONS = frozenset((0, 1, 2))
"""None, ReLU and ReLU6: their slopes are 0 or 1, so dz needs no rounding."""


def fuse_conv3x3_backward(calls: Sequence[InPlaceCall]) -> list[InPlaceCall]:
    """Join such gradients of large maps with the norm that follows and alone reads them."""
    result: list[InPlaceCall] = []
    for index, call in enumerate(calls):
        last = result[-1] if result else None
        if last is not None and _are_pair(last, call):
            product = last.operands[_DX]
            assert isinstance(product, Location)
            if not is_read_later(calls, index, product):
                result[-1] = _joined(last, call)
                continue
        result.append(call)
    return result


def _are_pair(convolution: InPlaceCall, norm: InPlaceCall) -> bool:
    if convolution.target != targets.CONV_BACKWARD_DATA or not is_conv3x3(convolution):
        return False
    if conv3x3_shape(convolution.attributes).tiles(convolution.attributes) < FEWEST_JOINED_TILES:
        return False
    if norm.target != targets.BATCH_NORM_BACKWARD or norm.attributes["type"] != 1:
        return False
    present = tuple(i for i, operand in enumerate(norm.operands) if operand is not None)
    is_bare = present == _NEEDED and norm.attributes["activation"] in _ACTIVATIONS
    return is_bare and _is_whole(convolution, norm) and _keep_apart(convolution, norm)


def _is_whole(convolution: InPlaceCall, norm: InPlaceCall) -> bool:
    product, read = convolution.operands[_DX], norm.operands[_NORM_DY]
    if not isinstance(product, Location) or not isinstance(read, Location):
        return False
    return replace(product, label="") == replace(read, label="")


def _keep_apart(convolution: InPlaceCall, norm: InPlaceCall) -> bool:
    """Whether the sums lie where the convolution reads nothing, and x where it writes nothing."""
    partial, x = norm.operands[_PARTIAL], norm.operands[_X]
    places = [(partial, convolution.operands[i]) for i in (_DY, _W)]
    places.append((x, convolution.operands[_DX]))
    return not any(
        isinstance(a, Location) and isinstance(b, Location) and overlap(a, b) for a, b in places
    )


def _joined(convolution: InPlaceCall, norm: InPlaceCall) -> InPlaceCall:
    read = tuple(convolution.operands[i] for i in (_DY, _W, _WORKSPACE))
    attributes = {**norm.attributes, **convolution.attributes}
    target = targets.CONV_BACKWARD_DATA_NORM
    return InPlaceCall(target, (*read, *norm.operands), attributes, norm.where)
