"""Who runs a dense or grouped convolution: a library or kernels of ours, and which follow it."""

from __future__ import annotations

from dataclasses import replace

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Convolution, Target
from renaissance.lowering.launches.conv3x3 import NORM, conv3x3, is_conv3x3
from renaissance.lowering.launches.norm import PLANS as NORM_PLANS
from renaissance.lowering.launches.norm import statistics
from renaissance.lowering.launches.planned import Plan, PlannedLaunch
from renaissance.lowering.launches.pointwise_backward import rest_of
from renaissance.lowering.launches.stem import is_stem, stem_forward, stem_weight

_LIBRARY = {
    targets.CONV_FORWARD: "forward",
    targets.CONV_FORWARD_STATISTICS: "forward_statistics",
    targets.CONV_BACKWARD_DATA: "backward_data",
    targets.CONV_BACKWARD_DATA_NORM: "backward_data",
    targets.CONV_BACKWARD_WEIGHT: "backward_weight",
}
_CONVOLUTION_SIZES = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")


def convolution_of(call: InPlaceCall) -> Convolution | None:
    """The convolution that a library runs for this call; None where kernels of ours run it."""
    is_ours = call.target not in _LIBRARY or is_stem(call) or is_conv3x3(call)
    return None if is_ours else as_convolution(call)


def as_convolution(call: InPlaceCall) -> Convolution:
    """What a call for a dense or grouped convolution computes, whoever runs it."""
    kind, a = _LIBRARY[call.target], call.attributes
    sizes = tuple(int(a[name]) for name in _CONVOLUTION_SIZES)
    y_type = a["y_type"] if kind.startswith("forward") else a["type"]
    return Convolution(kind, a["type"], y_type, sizes, a["workspace_bytes"])


def launches_behind(call: InPlaceCall, *, summed: int) -> list[PlannedLaunch]:
    """The kernels that follow a convolution.

    Args:
        call: A dense or grouped convolution.
        summed: Rows of sums for the statistics that it left; 0 where it left none.
    """
    if call.target is targets.CONV_BACKWARD_DATA_NORM:
        norm = InPlaceCall(targets.BATCH_NORM_BACKWARD, call.operands[NORM:], call.attributes)
        return NORM_PLANS[norm.target](norm)
    if call.target is not targets.CONV_FORWARD_STATISTICS:
        return []
    a = call.attributes
    rows = a["n"] * a["p"] * a["q"]
    output = {"rows": rows, "c": a["k"], "type": a["y_type"], "partial_rows": a["partial_rows"]}
    call = InPlaceCall(targets.BATCH_NORM_STATISTICS, (), output)
    if not summed:
        return statistics(call)
    return statistics(call, summed=1, pieces=summed)[1:]


def _convolution(call: InPlaceCall) -> list[PlannedLaunch]:
    """Kernels that run a convolution; or may be needed beside a library's, as the device shows."""
    if is_stem(call):
        return _stem(call)
    if is_conv3x3(call):
        product = conv3x3(call)
        return [product, *behind_product(call, product)]
    return [k for summed in (0, 1) for k in launches_behind(call, summed=summed)]


def _stem(call: InPlaceCall) -> list[PlannedLaunch]:
    if call.target == targets.CONV_BACKWARD_WEIGHT:
        return stem_weight(call)
    product = stem_forward(call)
    return [product, *behind_product(call, product)]


def behind_product(call: InPlaceCall, product: PlannedLaunch) -> list[PlannedLaunch]:
    """The kernels that follow a convolution of ours, whose blocks leave a row of sums each.

    Args:
        call: A dense convolution.
        product: The launch of its kernel.
    """
    if call.target is not targets.CONV_BACKWARD_DATA_NORM:
        return launches_behind(call, summed=product.grid[0])
    dy, w, *norm = (*call.operands[:2], *call.operands[NORM:])
    return rest_of(replace(call, operands=(dy, w, *norm)), 0)


PLANS: dict[Target, Plan] = dict.fromkeys(_LIBRARY, _convolution)
