"""What a :class:`~renaissance.task.DeepLearningTask` is configured with: one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from pathlib import Path
from typing import Any

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.algo.initializer import Initializer, KaimingUniform
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.optimizer import SGD, Optimizer
from renaissance.algo.scheduler import Constant, Scheduler
from renaissance.core.errors import check_int, fail
from renaissance.graph.blueprint import BluePrint

DEFAULT_EMA_DECAY = 0.999
METRICS = ("loss", "top1", "top5")
PIPELINES = ("auto", "host", "device")


class CompileInfo(Flag):
    """What ``compile`` prints."""

    NONE = 0
    ARCH_PLAN = auto()
    MEMORY_PLAN = auto()
    TRAIN_GRAPH = auto()
    INFER_GRAPH = auto()
    ALL = ARCH_PLAN | MEMORY_PLAN | TRAIN_GRAPH | INFER_GRAPH


class TTA(Enum):
    """Test-time augmentation: validation averages the logits of several views of a picture."""

    DISABLED = "disabled"
    LR = "lr"  # the picture and its mirror image
    SHIFT_1PX = "shift_1px"  # the picture and its four shifts by one pixel


class Progression(Enum):
    """How training pictures get the resolution they begin with."""

    CROP = "crop"  # a random window
    RESIZE = "resize"  # the whole picture, smaller


@dataclass(frozen=True, slots=True)
class Progressive:
    """Progressive resolution: the begin resolution up to and including an epoch, then the end one.

    Attributes:
        how: Crop or resize.
        until_epoch: Last epoch, counted from 1, at the begin resolution.
    """

    how: Progression
    until_epoch: int


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Everything a training is made from but its data and the global settings.

    Epochs are counted from 1. See :class:`~renaissance.task.DeepLearningTask` for each meaning.
    """

    model: BluePrint | None = None
    loss: CrossEntropy = field(default_factory=CrossEntropy)
    initializer: Initializer = field(default_factory=KaimingUniform)
    zero_gamma: bool = False
    optimizer: Optimizer = field(default_factory=SGD)
    scheduler: Scheduler = field(default_factory=lambda: Constant(base_lr=0.1))
    total_epochs: int = 1
    num_classes: int | None = None
    validation_interval: int = 1
    validation_offset: int = 0
    target_top1: float | None = None
    use_sema: bool = False
    ema_decay: float | None = None
    clip: ClipByValue | ClipByGlobalNorm | None = None
    tta: TTA = TTA.DISABLED
    freeze_first_layer_after: int | None = None
    progressive: Progressive | None = None
    metrics: tuple[str, ...] = METRICS
    save_epochs: tuple[tuple[int, Path | None], ...] = ()
    save_best: bool = False
    best_path: Path | None = None
    resume_from: Path | None = None
    lowering: str = "auto"
    pipeline: str = "auto"

    @property
    def effective_ema_decay(self) -> float | None:
        """Decay of the moving average; None if none is kept."""
        if self.ema_decay is None and self.use_sema:
            return DEFAULT_EMA_DECAY
        return self.ema_decay

    def validates(self, epoch: int) -> bool:
        """Whether ``epoch`` ends with a validation; the last one always does."""
        due = epoch >= self.validation_offset
        due = due and (epoch - self.validation_offset) % self.validation_interval == 0
        return due or epoch == self.total_epochs

    def freezes(self, epoch: int) -> bool:
        """Whether the first layer's weights stand still in ``epoch``."""
        return self.freeze_first_layer_after is not None and epoch > self.freeze_first_layer_after

    def begins_small(self, epoch: int) -> bool:
        """Whether ``epoch`` trains at the begin resolution of a progressive training."""
        return self.progressive is not None and epoch <= self.progressive.until_epoch

    def check_epochs(self) -> None:
        """Refuse epochs that the run does not have.

        Raises:
            ValueError: names the option, the epoch, and the number of epochs.
        """
        last = self.total_epochs
        for epoch, _ in self.save_epochs:
            check_int("epoch of save_model_at_epoch", epoch, 1, last)
        if self.freeze_first_layer_after is not None:
            check_int("epoch of freeze_first_layer_after", self.freeze_first_layer_after, 0, last)
        if self.progressive is not None:
            check_int("epoch of the progressive resolution", self.progressive.until_epoch, 1, last)
        if self.validation_offset > last:
            fail(ValueError, "validate_every offset", self.validation_offset, f"at most {last}")
        self.scheduler.check_run(1, last)

    def as_dict(self) -> dict[str, Any]:
        """The options as plain values; records appear by their ``repr``."""
        plain = (bool, int, float, str, type(None))
        values = {name: getattr(self, name) for name in self.__slots__}
        return {k: v if isinstance(v, plain) else repr(v) for k, v in values.items()}


def check_instance(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> Any:
    """Return ``value`` if it is of ``kind``; a class given for its instance gets a hint."""
    if isinstance(value, kind):
        return value
    if isinstance(value, type):
        fail(TypeError, name, value.__name__, f"an instance such as {example}, not the class")
    return fail(TypeError, name, value, f"such as {example}")


def check_method(name: str, value: Any, method: str, example: str) -> Any:
    """Return ``value`` if it is an instance that has ``method``: one's own records may be used."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        check_instance(name, value, (), example)
    return value
