"""The chainable options of a deep-learning task."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.algo.initializer import Initializer
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.optimizer import Optimizer
from renaissance.algo.scheduler import Scheduler
from renaissance.core.errors import check_int, check_real, fail
from renaissance.core.settings import check_bool, check_fraction
from renaissance.core.types import Phase
from renaissance.graph.blueprint import BluePrint, Layer
from renaissance.task.base import TaskBase
from renaissance.task.options import (
    METRICS,
    PIPELINES,
    TTA,
    Progression,
    Progressive,
    TrainingOptions,
    check_instance,
    check_method,
)

PathLike = str | os.PathLike[str]


class OptionChain(TaskBase):
    """Each call checks its values, notes them, and returns the task; only while PLANNING.

    Epochs are counted from 1; accuracies are fractions.

    Attributes:
        options: What has been configured so far.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.options = TrainingOptions()

    def _note(self, call: str, **changes: Any) -> Self:
        self.require(Phase.PLANNING, call)
        self.options = replace(self.options, **changes)
        return self

    # -- what is trained --------------------------------------------------------------------------

    def model(self, blueprint: BluePrint | Layer) -> Self:
        """The model: a BluePrint, or the layer that is its tree."""
        check_instance("model", blueprint, (BluePrint, Layer), "rn.seq(rn.flatten(), rn.fc(10))")
        tree = blueprint if isinstance(blueprint, BluePrint) else BluePrint(blueprint)
        return self._note("model", model=tree)

    def num_classes(self, count: int) -> Self:
        """Number of classes, checked against the model and the data; theirs unless given."""
        return self._note("num_classes", num_classes=check_int("num_classes", count, 1))

    def initializer(self, initializer: Initializer, *, zero_gamma: bool = False) -> Self:
        """How weights start; ``zero_gamma`` starts each residual block's last BN at zero."""
        check_method("initializer", initializer, "draw", "rn.KaimingUniform()")
        check_bool("zero_gamma", zero_gamma)
        return self._note("initializer", initializer=initializer, zero_gamma=zero_gamma)

    # -- how it is trained ------------------------------------------------------------------------

    def loss(self, loss: CrossEntropy) -> Self:
        """The loss; cross entropy without smoothing unless given."""
        check_instance("loss", loss, CrossEntropy, "rn.CrossEntropy(label_smoothing=0.1)")
        return self._note("loss", loss=loss)

    def optimizer(self, optimizer: Optimizer) -> Self:
        """The optimizer; plain SGD unless given. It holds no learning rate."""
        check_method("optimizer", optimizer, "update", "rn.AdamW(weight_decay=1e-4)")
        return self._note("optimizer", optimizer=optimizer)

    def scheduler(self, scheduler: Scheduler) -> Self:
        """The learning rate over the run; constant 0.1 unless given."""
        check_instance("scheduler", scheduler, Scheduler, "rn.CosineAnnealing(1e-3, warmup=5)")
        return self._note("scheduler", scheduler=scheduler)

    def total_epochs(self, epochs: int) -> Self:
        """Number of epochs."""
        return self._note("total_epochs", total_epochs=check_int("total_epochs", epochs, 1))

    def grad_clip(self, max_abs: float | None = None, *, max_norm: float | None = None) -> Self:
        """Clamp every gradient to [-max_abs, max_abs], or scale all to a joint norm of max_norm."""
        if (max_abs is None) == (max_norm is None):
            fail(ValueError, "grad_clip", (max_abs, max_norm), "either max_abs or max_norm")
        clip = ClipByGlobalNorm(max_norm) if max_norm is not None else None
        return self._note("grad_clip", clip=clip or ClipByValue(max_abs))  # type: ignore[arg-type]

    def use_sema(self, enabled: bool = True) -> Self:
        """Make the averaged weights the main weights at the start of each epoch (switch EMA)."""
        return self._note("use_sema", use_sema=check_bool("use_sema", enabled))

    def sema_decay(self, decay: float) -> Self:
        """Keep a moving average of the weights with this decay, and validate it too."""
        checked = check_real("sema_decay", decay, 0.0, 1.0, open_high=True)
        return self._note("sema_decay", ema_decay=checked)

    def freeze_first_layer_after(self, epoch: int) -> Self:
        """Leave the first layer's weights as they are after ``epoch``; 0: from the start."""
        checked = check_int("epoch of freeze_first_layer_after", epoch, 0)
        return self._note("freeze_first_layer_after", freeze_first_layer_after=checked)

    def progressive_crop(self, until_epoch: int) -> Self:
        """Up to and including this epoch, train on random windows of the begin resolution.

        The settings' ``train_resolution((begin, end))`` says how large; the data has the end's.
        """
        return self._progress("progressive_crop", Progression.CROP, until_epoch)

    def progressive_resize(self, until_epoch: int) -> Self:
        """Up to and including this epoch, train on pictures reduced to the begin resolution."""
        return self._progress("progressive_resize", Progression.RESIZE, until_epoch)

    def _progress(self, call: str, how: Progression, epoch: int) -> Self:
        checked = check_int(f"epoch of {call}", epoch, 1)
        return self._note(call, progressive=Progressive(how, checked))

    def lowering(self, name: str) -> Self:
        """``"xla"``, ``"fused"`` or ``"auto"``, as in :func:`renaissance.compile`."""
        return self._note("lowering", lowering=name)

    def pipeline(self, name: str) -> Self:
        """Where batches are made: ``"host"``, ``"device"``, or ``"auto"``.

        On the device, pictures in memory are copied there once, and many steps run as one call.
        ``"auto"`` does so on a GPU that has room for them, if all transforms are geometric.
        """
        if name not in PIPELINES:
            fail(ValueError, "pipeline", name, f"one of {', '.join(PIPELINES)}")
        return self._note("pipeline", pipeline=name)

    # -- how it is validated ----------------------------------------------------------------------

    def validate_every(self, interval: int, offset: int = 0) -> Self:
        """Validate after epochs offset, offset + interval, ...; offset 0: multiples of interval.

        The last epoch is always validated.
        """
        return self._note(
            "validate_every",
            validation_interval=check_int("validate_every interval", interval, 1),
            validation_offset=check_int("validate_every offset", offset, 0),
        )

    def early_stop_by_top1(self, target: float) -> Self:
        """Stop once a validation's top-1, of main or averaged weights, reaches this fraction."""
        return self._note("early_stop_by_top1", target_top1=check_fraction("target top-1", target))

    def tta(self, augmentation: TTA) -> Self:
        """Average the logits of several views of each validation picture."""
        check_instance("tta", augmentation, TTA, "TTA.LR")
        return self._note("tta", tta=augmentation)

    def metrics(self, *names: str) -> Self:
        """Scores shown in each epoch's line, out of "loss", "top1", "top5"; the file has all."""
        for name in names:
            if name not in METRICS:
                fail(ValueError, "metric", name, f"one of {', '.join(METRICS)}")
        if not names:
            fail(ValueError, "metrics", names, f"at least one of {', '.join(METRICS)}")
        return self._note("metrics", metrics=tuple(dict.fromkeys(names)))

    # -- what is kept -----------------------------------------------------------------------------

    def save_model_at_epoch(self, epoch: int, path: PathLike | None = None) -> Self:
        """Write a checkpoint after ``epoch``; into the run's directory unless a path is given."""
        entry = (check_int("epoch of save_model_at_epoch", epoch, 1), _path(path))
        return self._note("save_model_at_epoch", save_epochs=(*self.options.save_epochs, entry))

    def save_best_model(self, path: PathLike | None = None) -> Self:
        """Write a checkpoint whenever the main weights' top-1 beats all earlier ones of the run."""
        return self._note("save_best_model", save_best=True, best_path=_path(path))

    def resume(self, path: PathLike) -> Self:
        """Go on from a checkpoint of the same plan, after the epoch it was written in."""
        checked = _path(path)
        if checked is None or not checked.is_file():
            raise FileNotFoundError(f"{path}: no such file, expected a checkpoint to resume from")
        return self._note("resume", resume_from=checked)


def _path(value: PathLike | None) -> Path | None:
    if value is None:
        return None
    path = Path(value)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent}: no such directory, expected one to hold {path.name}"
        )
    return path
