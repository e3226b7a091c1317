"""What a call has to do at least: bytes through memory, and operations of its products.

From the plan alone. Bytes count every operand once where it is read and once where it is written,
as if nothing stayed in a cache between calls; a call that needs a sum over a map before it can use
the map (the backward of a batch norm) reads it twice. Workspaces do not count: they are a choice of
the kernel, not of the task. Only products count as operations: the rest is bound by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.conv3x3 import NORM as CONV_NORM
from renaissance.lowering.launches.norm import stash_of
from renaissance.lowering.launches.pointwise_backward import NORM

_WIDTHS = (4, 2)  # bytes of an element, by the library's number of its type


@dataclass(frozen=True, slots=True)
class Work:
    """The least that a call can do.

    Attributes:
        nbytes: Read and written, in bytes.
        flops: Multiplications and additions of its products.
    """

    nbytes: int
    flops: int

    def floor(self, flops_per_second: float, bytes_per_second: float) -> float:
        """Seconds below which no kernel can be, on a device of these rates."""
        return max(self.flops / flops_per_second, self.nbytes / bytes_per_second)


def work_of(call: InPlaceCall) -> Work:
    """Bytes and operations of a call. One without an entry here moves each operand once."""
    passes = _PASSES.get(call.target, {})
    nbytes = sum(
        operand.nbytes * passes.get(index, passes.get(index - len(call.operands), 1))
        for index, operand in enumerate(call.operands)
        if isinstance(operand, Location)
    )
    more = _MORE_BYTES.get(call.target)
    flops = _FLOPS.get(call.target)
    return Work(nbytes + (more(call) if more else 0), flops(call) if flops else 0)


# Operands not moved exactly once, by position in the operation's record (csrc), -1 the last:
# 2 where a tensor is read and written, or read twice; 0 for workspaces and tables that are hardly
# read.
_PASSES: Mapping[Target, Mapping[int, int]] = {
    targets.SOFTMAX_CROSS_ENTROPY: {9: 0},
    targets.CHECK_AND_UNSCALE: {0: 2},
    targets.CLIP_BY_NORM: {0: 3, 1: 0},
    targets.EMA_UPDATE: {0: 2},
    targets.ACCUMULATE: {1: 2},
    targets.OPTIMIZER: {0: 2, 1: 0, 2: 2, 3: 2, 11: 2},
    targets.LARS_UPDATE: {0: 2, 2: 2},
    targets.SET_STEP_SCALARS: {0: 0},
    targets.BEGIN_STEP: {5: 0},
    targets.CONV_FORWARD: {3: 0},
    targets.CONV_FORWARD_STATISTICS: {3: 0, -1: 0},
    targets.CONV_BACKWARD_DATA: {3: 0},
    targets.CONV_BACKWARD_DATA_NORM: {2: 0, CONV_NORM + 19: 0},
    targets.CONV_BACKWARD_WEIGHT: {3: 0},
    targets.POINTWISE_FORWARD: {19: 0},
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: {3: 0},
    targets.DEPTHWISE_NORM_FORWARD: {14: 0},
    targets.DEPTHWISE_CONV_BACKWARD: {16: 0, 17: 0},
    targets.BATCH_NORM_STATISTICS: {7: 0},
    targets.BATCH_NORM_BACKWARD: {19: 0},
    targets.POINTWISE_BACKWARD_DATA: {NORM + 19: 0},
    targets.POINTWISE_BACKWARD: {NORM + 19: 0, -1: 0},
}


def _images(call: InPlaceCall) -> int:
    """The batch comes from outside the banks: images, and a label of four bytes a row."""
    a = call.attributes
    return int(a["pixels"] * a["channels"] * _WIDTHS[a["from_type"]] + 4 * a["rows"])


def _samples(call: InPlaceCall) -> int:
    """A batch's bytes from the data set, an id and a label of four bytes each."""
    a = call.attributes
    h, w, c = (int(size) for size in a["chain"][:3])
    return int(a["rows"]) * (h * w * c + 8)


def _gradients(call: InPlaceCall) -> int:
    """The optimizer reads master gradients only as far as it is given no raw ones."""
    a = call.attributes
    return 4 * int(a["count"] if call.operands[9] is None else a["decay_from"])


def _second_pass(call: InPlaceCall) -> int:
    """What a norm's second backward pass moves that the first has moved: x, a normalised shortcut,
    and dz, as the first pass left it or made again from all that it is made of. Nothing where there
    is but one pass."""

    def nbytes(*places: int) -> int:
        found = (call.operands[place] for place in places)
        return sum(operand.nbytes for operand in found if isinstance(operand, Location))

    dy, gate, argmax, x, shortcut, dx, dshortcut, addend, mask = 0, 1, 2, 3, 8, 13, 16, 20, 21
    if call.attributes.get("summed") or not any(call.operands[i] for i in (dx, dshortcut)):
        return 0
    stash = stash_of(call)
    left = nbytes(x) + (nbytes(dx) if stash == 2 else 0)
    return nbytes(x, shortcut) + (left if stash else nbytes(dy, gate, argmax, addend, mask))


def _pointwise_backward(call: InPlaceCall) -> int:
    """dz is written once, and read by the norm's second pass with x and a normalised shortcut."""
    product, x, shortcut, dx, dshortcut = (call.operands[NORM + i] for i in (0, 3, 8, 13, 16))
    if dx is None and dshortcut is None:
        return 0
    read = (x, shortcut, dshortcut if product is None else product)
    return sum(place.nbytes for place in read if isinstance(place, Location))


def _conv_backward_norm(call: InPlaceCall) -> int:
    """dz is read by the norm's second pass, with x."""
    read = (call.operands[CONV_NORM + i] for i in (0, 3))
    return sum(place.nbytes for place in read if isinstance(place, Location))


_MORE_BYTES: Mapping[Target, Callable[[InPlaceCall], int]] = {
    targets.LOAD_BATCH: _images,
    targets.BEGIN_STEP: _images,
    targets.AUGMENT_BATCH: _samples,
    targets.OPTIMIZER: _gradients,
    targets.BATCH_NORM_BACKWARD: _second_pass,
    targets.CONV_BACKWARD_DATA_NORM: _conv_backward_norm,
    targets.POINTWISE_BACKWARD_DATA: _pointwise_backward,
    targets.POINTWISE_BACKWARD: _pointwise_backward,
}


def _product(call: InPlaceCall) -> int:
    a = call.attributes
    return int(2 * a["n"] * a["c"] * a["k"])


def _both_convs(call: InPlaceCall) -> int:
    return 2 * _conv(call)


def _pointwise(call: InPlaceCall) -> int:
    a = call.attributes
    return int(2 * a["rows"] * a["c"] * a["k"])


def _both_products(call: InPlaceCall) -> int:
    return 2 * _pointwise(call)


def _fc_backward(call: InPlaceCall) -> int:
    """One product for the input's gradient, one for the weights', as far as they are wanted."""
    return _product(call) * sum(call.operands[index] is not None for index in (4, 5))


def _conv(call: InPlaceCall) -> int:
    """The same number forward and in both directions backward: every product appears in each."""
    a: Mapping[str, Any] = call.attributes
    outputs = a["n"] * a["p"] * a["q"] * a["k"]
    return int(2 * outputs * a["r"] * a["s"] * (a["c"] // a["groups"]))


_FLOPS: Mapping[Target, Callable[[InPlaceCall], int]] = {
    targets.FC_FORWARD: _product,
    targets.POINTWISE_BACKWARD_DATA: _pointwise,
    targets.POINTWISE_BACKWARD: _both_products,
    targets.FC_BACKWARD: _fc_backward,
    targets.GAP_FC_BACKWARD_DATA: _product,
    targets.CONV_FORWARD: _conv,
    targets.CONV_FORWARD_STATISTICS: _conv,
    targets.CONV_BACKWARD_DATA: _conv,
    targets.CONV_BACKWARD_DATA_NORM: _conv,
    targets.CONV_BACKWARD_WEIGHT: _conv,
    targets.POINTWISE_FORWARD: _pointwise,
    targets.DEPTHWISE_CONV_FORWARD: _conv,
    targets.DEPTHWISE_NORM_FORWARD: _conv,
    targets.DEPTHWISE_CONV_BACKWARD_DATA: _conv,
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: _conv,
    targets.DEPTHWISE_CONV_BACKWARD: _both_convs,
}
