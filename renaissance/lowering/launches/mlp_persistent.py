"""Which CUDA kernel runs many train steps of an MLP."""

from __future__ import annotations

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Kernel, Target
from renaissance.lowering.launches.mlp_plan import (
    BLOCKS,
    CLUSTERS,
    GROUP,
    SHARED_BYTES,
    THREADS,
    MlpPlan,
)
from renaissance.lowering.launches.planned import Plan, PlannedLaunch

ARCHITECTURE = "sm_90a"


def mlp_train_steps(call: InPlaceCall) -> list[PlannedLaunch]:
    """Launch of ``rn_mlp_train_steps``."""
    a = call.attributes
    widths = tuple(int(width) for width in a["widths"])
    plan = MlpPlan(widths, a["batch"])
    constants: dict[str, int | str] = {
        "WIDTHS": ",".join(map(str, widths)),
        "BATCH": a["batch"],
        "GROUP": GROUP,
        "CLUSTERS": CLUSTERS,
        "INPUT_SLAB": plan.input_slab,
        "ACTIVATION": a["activation"],
        "RULE": a["rule"],
        "INPUT": a["input_type"],
        "CLIP": int(a["max_abs"] != 0.0),
        "TRACE": 0,
    }
    macros = tuple(sorted((f"RN_{name}", value) for name, value in constants.items()))
    kernel = Kernel("mlp_persistent.cu", "mlp_persistent_kernel", macros, ARCHITECTURE)
    return [PlannedLaunch(kernel, (BLOCKS, 1, 1), THREADS, SHARED_BYTES, GROUP)]


PLANS: dict[Target, Plan] = {targets.MLP_TRAIN_STEPS: mlp_train_steps}
