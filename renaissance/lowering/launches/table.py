"""Which CUDA kernels a call launches.

One small function per custom call, from its attributes alone; so every kernel a program needs can
be named, compiled and counted on a machine without a GPU. Widths of layers become constants of the
kernel; the number of rows stays a run-time argument, so that all variants share kernels.
"""

from __future__ import annotations

from renaissance.core.errors import PlanError, fail
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches import (
    augment,
    convolutions,
    depthwise,
    depthwise_backward,
    depthwise_norm,
    elements,
    fc,
    loss,
    mlp_persistent,
    norm,
    pointwise,
    pointwise_backward,
    pointwise_gradients,
    pool,
    regions,
)
from renaissance.lowering.launches.planned import Plan, PlannedLaunch

PLANS: dict[Target, Plan] = {
    **fc.PLANS,
    **elements.PLANS,
    **loss.PLANS,
    **regions.PLANS,
    **convolutions.PLANS,
    **pointwise.PLANS,
    **pointwise_backward.PLANS,
    **pointwise_gradients.PLANS,
    **depthwise.PLANS,
    **depthwise_norm.PLANS,
    **depthwise_backward.PLANS,
    **norm.PLANS,
    **pool.PLANS,
    **augment.PLANS,
    **mlp_persistent.PLANS,
}
"""How every custom call is launched on CUDA."""


def launches_of(call: InPlaceCall) -> list[PlannedLaunch]:
    """The launches of a call, in order.

    Raises:
        PlanError: there is no CUDA kernel for it.
    """
    plan = PLANS.get(call.target)
    if plan is None:
        known = sorted(target.name for target in PLANS)
        fail(PlanError, "custom call on CUDA", call.target.name, f"one of {known}")
    return plan(call)
