"""Recipe: what a train step is made from, fixed at compile time."""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.algo.clip import Clip
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.loss_scale import LossScale
from renaissance.algo.optimizer import Optimizer
from renaissance.core.types import Precision, WeightGroup
from renaissance.graph.arch_plan import ArchPlan

METRICS = ("loss", "top1", "top5", "count", "lr", "skipped")
"""What a step reports, in order."""

SMALL_PARAMETERS = 1 << 21
"""Up to so many, what a step moves stays in a GPU's second cache."""
CONVOLUTIONS = frozenset({WeightGroup.FIRST_CONV, WeightGroup.DEEP_CONV})


@dataclass(frozen=True)
class Recipe:
    """What a train step is made from; everything that is fixed at compile time."""

    plan: ArchPlan
    precision: Precision
    loss: CrossEntropy
    optimizer: Optimizer
    loss_scale: LossScale
    clip: Clip | None = None
    ema: float | None = None
    freeze_first_layer: bool = False

    @property
    def groups(self) -> dict[str, WeightGroup]:
        """The group of every trainable tensor, by full name."""
        return {name: spec.group for name, spec, _ in self.plan.weights()}

    @property
    def trained(self) -> frozenset[str]:
        """Names of the tensors that change: all, or all but the frozen first layer's."""
        return frozenset(
            name
            for name, _, layer in self.plan.weights()
            if not (self.freeze_first_layer and layer.is_first_layer)
        )

    @property
    def is_small_mlp(self) -> bool:
        """Whether the network is so small that launches count more than bytes, and all products."""
        return (
            self.plan.parameter_count <= SMALL_PARAMETERS
            and not set(self.groups.values()) & CONVOLUTIONS
        )
