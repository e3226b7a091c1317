"""From options, settings and data to compiled programs; whatever does not fit is found here."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import renaissance.program as programs
from renaissance.core.errors import fail
from renaissance.core.settings import GlobalSettings
from renaissance.program import Program
from renaissance.task.device import pick_device
from renaissance.task.dry_run import BlankRun, blank_runs
from renaissance.task.evaluation import Evaluator
from renaissance.task.options import TrainingOptions
from renaissance.task.source import BatchSource, describe_source, last_batch_size


@dataclass(frozen=True)
class Build:
    """What a run works with.

    Attributes:
        options: As configured.
        settings: As configured.
        train: Training batches.
        val: Validation batches, if any.
        program: The compiled model.
        frozen_program: The same with its first layer frozen, if it ever is; states fit both.
        evaluator: Validates the program's states.
    """

    options: TrainingOptions
    settings: GlobalSettings
    train: BatchSource
    val: BatchSource | None
    program: Program
    frozen_program: Program | None
    evaluator: Evaluator

    @property
    def stacked(self) -> bool:
        """Whether stacks of batches are taken from a source that has them."""
        return self.options.progressive is None

    def compile_executables(self) -> None:
        """Compile everything the run needs, before any data is seen, by running it on blanks."""
        deque(self.dry_run(), maxlen=0)
        if self.frozen_program is not None:
            frozen = blank_runs(
                self.frozen_program, self.settings, self.train, stacked=self.stacked
            )
            deque(frozen, maxlen=0)

    def dry_run(self) -> Iterator[BlankRun]:
        """Run everything once more, compiled, and time it."""
        return blank_runs(
            self.program,
            self.settings,
            self.train,
            self.val,
            self.evaluator,
            stacked=self.stacked,
        )

    def as_dict(self) -> dict[str, Any]:
        """The whole configuration as plain values."""
        return {
            "settings": self.settings.as_dict(),
            "options": self.options.as_dict(),
            "train": describe_source(self.train),
            "val": None if self.val is None else describe_source(self.val),
            "model": {
                "program": repr(self.program),
                "parameters": self.program.plan.parameter_count,
            },
            "versions": {
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
            },
        }


def build(
    options: TrainingOptions,
    settings: GlobalSettings,
    train: BatchSource | None,
    val: BatchSource | None,
) -> Build:
    """Compile the programs of a run.

    Raises:
        ValueError: something is missing or does not fit together; says what.
        ShapeError: a layer cannot take the shape it gets.
    """
    if options.model is None:
        fail(ValueError, "model", None, "a call of model(...) before finalize_memory()")
    if train is None:
        fail(ValueError, "data", None, "a call of data(train, val) before finalize_memory()")
    options.check_epochs()
    check_data(options, settings, train, val)
    program = compile_program(options, settings, train, val, freeze=False)
    frozen = None
    if options.freeze_first_layer_after is not None:
        frozen = compile_program(options, settings, train, val, freeze=True)
    evaluator = Evaluator(program, options.tta)
    return Build(options, settings, train, val, program, frozen, evaluator)


def check_data(
    options: TrainingOptions,
    settings: GlobalSettings,
    train: BatchSource,
    val: BatchSource | None,
) -> None:
    """Refuse data that fits neither the settings nor itself."""
    height, width, channels = train.image_shape
    sides = settings.train_resolution
    if sides is not None and (height, width) != (sides[1], sides[1]):
        expected = f"{sides[1]}x{sides[1]}, the training resolution of the settings"
        fail(ValueError, "size of the training pictures", f"{height}x{width}", expected)
    if settings.is_progressive and options.progressive is None:
        expected = "progressive_crop(epoch) or progressive_resize(epoch) to go with it"
        fail(ValueError, "train_resolution", sides, expected)
    if options.progressive is not None and not settings.is_progressive:
        expected = "a pair (begin, end) of two sizes, for the progressive resolution asked for"
        fail(ValueError, "train_resolution", sides, expected)
    if sides is not None and sides[0] > sides[1]:
        fail(ValueError, "train_resolution", sides, "a begin no larger than its end")
    if settings.batch_size is not None and settings.batch_size != train.batch_size:
        expected = f"{settings.batch_size}, the batch size of the settings"
        fail(ValueError, "batch size of the training data", train.batch_size, expected)
    if val is None:
        if options.target_top1 is not None:
            fail(ValueError, "validation data", None, "some, for early_stop_by_top1")
        if options.save_best:
            fail(ValueError, "validation data", None, "some, for save_best_model")
        return
    if val.image_shape[2] != channels:
        expected = f"{channels}, as the training pictures have"
        fail(ValueError, "channels of the validation pictures", val.image_shape[2], expected)
    side = settings.val_resolution
    if side is not None and val.image_shape[:2] != (side, side):
        found = "x".join(map(str, val.image_shape[:2]))
        expected = f"{side}x{side}, the validation resolution of the settings"
        fail(ValueError, "size of the validation pictures", found, expected)
    if val.dataset.num_classes != train.dataset.num_classes:
        expected = f"{train.dataset.num_classes}, as the training data has"
        fail(ValueError, "classes of the validation data", val.dataset.num_classes, expected)


def choose_lowering(options: TrainingOptions, settings: GlobalSettings) -> str:
    """The lowering to ask for.

    Raises:
        ValueError: the fused lowering is asked for and cannot do what the options say.
    """
    freezes = options.freeze_first_layer_after is not None
    if freezes and options.lowering == "fused":
        expected = "'xla' or 'auto' with freeze_first_layer_after: banks differ once it is frozen"
        fail(ValueError, "lowering", options.lowering, expected)
    on_cpu = pick_device(settings).platform == "cpu"  # also where there is a GPU beside it
    if options.lowering == "auto" and (on_cpu or freezes):
        return "xla"
    return options.lowering


def compile_program(
    options: TrainingOptions,
    settings: GlobalSettings,
    train: BatchSource,
    val: BatchSource | None,
    *,
    freeze: bool,
) -> Program:
    """The program of a run, with its first layer frozen or not."""
    assert options.model is not None
    height, width, channels = train.image_shape
    sides = settings.train_resolution
    begin = (sides[0], sides[0]) if options.progressive and sides else (height, width)
    classes = options.num_classes
    return programs.compile(
        options.model,
        (*begin, channels),
        train.batch_size,
        last_batch_size=last_batch_size(train),
        val_batch_size=train.batch_size if val is None else val.batch_size,
        val_last_batch_size=None if val is None else last_batch_size(val),
        end_resolution=(height, width),
        val_resolution=(height, width) if val is None else val.image_shape[:2],
        num_classes=train.dataset.num_classes if classes is None else classes,
        loss=options.loss,
        optimizer=options.optimizer,
        scheduler=options.scheduler,
        epochs=options.total_epochs,
        steps_per_epoch=len(train),
        initializer=options.initializer,
        zero_gamma=options.zero_gamma,
        amp=settings.amp,
        ema=options.effective_ema_decay,
        grad_clip=options.clip,
        freeze_first_layer=freeze,
        lowering=choose_lowering(options, settings),
    )
