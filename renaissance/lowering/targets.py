"""The names of every custom call: what the lowering may emit and the native library must hold.

Nothing but names, so that a program can be lowered, read and tested where no library was built.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A custom call.

    Attributes:
        name: The name XLA knows it by.
        cuda: Whether there is a CUDA handler beside the host one.
    """

    name: str
    cuda: bool = True


PHILOX_UNIFORM = Target("rn_philox_uniform", cuda=False)
FC_FORWARD = Target("rn_fc_forward")
FC_BACKWARD = Target("rn_fc_backward")
ACTIVATION_FORWARD = Target("rn_activation_forward")
ACTIVATION_BACKWARD = Target("rn_activation_backward")
SOFTMAX_CROSS_ENTROPY = Target("rn_softmax_cross_entropy")
DROPOUT = Target("rn_dropout")
CAST = Target("rn_cast")
CLEAR = Target("rn_clear")
COPY = Target("rn_copy")
UNSCALE_GRADIENTS = Target("rn_unscale_gradients")
EXPONENTIAL_AVERAGE = Target("rn_exponential_average")
ACCUMULATE_METRICS = Target("rn_accumulate_metrics")
OPTIMIZER = Target("rn_optimizer")
LARS_NORMS = Target("rn_lars_norms")
LARS_UPDATE = Target("rn_lars_update")
STEP_BEGIN = Target("rn_step_begin")
STEP_END = Target("rn_step_end")

TARGETS: tuple[Target, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Target))
"""Every target of the native library."""
