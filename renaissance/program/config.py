"""ProgramConfig: everything a program is compiled from, in one frozen record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from renaissance.algo.clip import Clip
from renaissance.algo.initializer import Initializer
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.loss_scale import LossScale
from renaissance.algo.optimizer import Optimizer
from renaissance.algo.scheduler import Scheduler
from renaissance.core.errors import check_int, check_real, fail
from renaissance.core.types import Precision, Variant
from renaissance.graph.blueprint import BluePrint
from renaissance.graph.options import CompileOptions, ShapeId

LOWERINGS = ("auto", "xla", "fused")
LOOPS = ("auto", "chain", "persistent")


@dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    """The arguments of :func:`renaissance.compile`, checked. See there for their meaning.

    Attributes:
        blueprint: The model.
        options: What the front half is told: shapes of the six variants, precision, slots.
    """

    blueprint: BluePrint
    options: CompileOptions
    num_classes: int | None
    loss: CrossEntropy
    optimizer: Optimizer
    scheduler: Scheduler
    epochs: int
    steps_per_epoch: int
    initializer: Initializer
    zero_gamma: bool
    precision: Precision
    loss_scale: LossScale
    ema: float | None
    clip: Clip | None
    lowering: str
    loop: str = "auto"

    def __post_init__(self) -> None:
        self.scheduler.check_run(self.steps_per_epoch, self.epochs)
        if self.ema is not None:
            check_real("ema", self.ema, 0.0, 1.0, open_high=True)
        if self.lowering not in LOWERINGS:
            fail(ValueError, "lowering", self.lowering, f"one of {LOWERINGS}")
        if self.loop not in LOOPS:
            fail(ValueError, "loop", self.loop, f"one of {LOOPS}")
        if self.loop == "persistent" and self.lowering == "xla":
            fail(ValueError, "loop in the xla lowering", self.loop, "lowering='fused'")

    @property
    def amp(self) -> bool:
        """Whether activations and compute weights are fp16."""
        return self.precision is Precision.AMP

    def shapes(self, training: bool) -> tuple[ShapeId, ...]:
        """The distinct input shapes of the training or the validation variants."""
        variants = (v for v in Variant if v.is_training is training)
        return tuple(dict.fromkeys(self.options.shape_id(v) for v in variants))


def check_hwc(name: str, value: Sequence[int]) -> tuple[int, int, int]:
    """An input shape (height, width, channels)."""
    if not isinstance(value, Sequence) or len(value) != 3:
        fail(ValueError, name, value, "three integers (height, width, channels)")
    height, width, channels = (check_int(f"{name}[{i}]", d, 1) for i, d in enumerate(value))
    return height, width, channels


def check_hw(
    name: str, value: Sequence[int] | int | None, default: tuple[int, int]
) -> tuple[int, int]:
    """A resolution: one integer for a square, or (height, width)."""
    if value is None:
        return default
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2:
        fail(ValueError, name, value, "an integer or two integers (height, width)")
    return check_int(f"{name}[0]", pair[0], 1), check_int(f"{name}[1]", pair[1], 1)
