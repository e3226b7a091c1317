"""Whether many steps run as a chain of calls in a loop, or as one launch of a kernel."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from renaissance.core.errors import NativeError
from renaissance.lowering.calls.in_place import InPlaceCall, PlanLaunches
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.launches.mlp_persistent import ARCHITECTURE
from renaissance.lowering.rewrites.persistent import persistent_call, reasons_against
from renaissance.program.cuda import CudaKernels

logger = logging.getLogger("renaissance")

FEWEST_STEPS = 2
"""Loading and storing weights and moments costs as much as two steps: a single one is no gain."""


def choose_persistent(
    loop: str,
    scene: Scene,
    calls: Sequence[InPlaceCall],
    steps: int,
    images: str,
    launches: PlanLaunches,
    *,
    indexed: bool,
) -> InPlaceCall | None:
    """The one call for all steps, or None for a chain of ``calls`` in a loop.

    ``"auto"`` takes the persistent kernel for two steps and more, on devices it is made for, if it
    covers the step: an H200 takes 20 us a step with it and 68 us with the chain (MLP
    784-1024-512-256-10, batch 200, AMP).

    Args:
        loop: ``"auto"``, ``"chain"`` or ``"persistent"``.
        scene: What the step was lowered with.
        calls: The simplified calls of one step.
        steps: How many.
        images: Type of the images from outside.
        launches: The kernels of a call.
        indexed: Whether batches are rows of a data set.

    Raises:
        PlanError: ``"persistent"`` is asked for, and the kernel does not cover the step.
        NativeError: it is asked for, and the device cannot hold or compile it.
    """
    if loop == "chain":
        return None
    if loop == "auto":
        made_for = isinstance(launches, CudaKernels) and (
            launches.compiler.architecture == ARCHITECTURE
        )
        if not made_for or steps < FEWEST_STEPS or reasons_against(scene, calls):
            return None
    call = persistent_call(scene, calls, steps, images, indexed=indexed)
    try:
        launches(call)
    except NativeError as reason:
        if loop == "persistent":
            raise
        logger.warning("running steps as a chain of launches: %s", reason)
        return None
    return call
