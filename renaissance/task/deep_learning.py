"""DeepLearningTask: a whole training as one chain of calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from renaissance.core.settings import Settings
from renaissance.core.types import Phase
from renaissance.task.build import Build, build
from renaissance.task.chain import OptionChain
from renaissance.task.checkpoint import load_checkpoint
from renaissance.task.curve import draw_curve
from renaissance.task.describe import describe
from renaissance.task.device import on_device
from renaissance.task.interrupt import StopOnInterrupt, TrainingInterrupted
from renaissance.task.metrics import EpochRecord, TrainingResult
from renaissance.task.options import CompileInfo
from renaissance.task.placement import place
from renaissance.task.progress import Display, summary
from renaissance.task.run_directory import RunDirectory, check_run_name
from renaissance.task.source import BatchSource, LoaderMaker, check_source, make_loaders
from renaissance.task.training import Training


class DeepLearningTask(OptionChain):
    """Configure, compile, run::

        result = (
            DeepLearningTask("digits", settings)
            .data(train, val)
            .model(rn.seq(rn.flatten(), rn.fc(128), rn.relu(), rn.fc(10)))
            .optimizer(rn.AdamW(weight_decay=1e-4))
            .scheduler(rn.CosineAnnealing(1e-3, warmup=5))
            .total_epochs(30)
            .compile()
            .run()
        )

    Every call of the chain (:class:`~renaissance.task.chain.OptionChain` has the rest) checks its
    values and returns the task. ``compile`` ends the configuration.

    Args:
        name: Names the run's directory.
        settings: Seed, precision, device, resolution; the defaults if none are given.
        runs: Directory that holds the directories of runs; None: leave no files behind.
        quiet: Print nothing.
    """

    def __init__(
        self,
        name: str = "training",
        settings: Settings | None = None,
        *,
        runs: str | os.PathLike[str] | None = "runs",
        quiet: bool = False,
    ) -> None:
        super().__init__(check_run_name(name))
        self._settings = Settings() if settings is None else settings
        self._runs = None if runs is None else Path(runs)
        self._quiet = quiet
        self._maker: LoaderMaker | None = None
        self._train: BatchSource | None = None
        self._val: BatchSource | None = None
        self._listeners: list[Callable[[EpochRecord], Any]] = []
        self._build: Build | None = None

    # -- configuration beyond the options ---------------------------------------------------------

    def data(
        self, train: BatchSource | LoaderMaker, val: BatchSource | None = None
    ) -> DeepLearningTask:
        """Training batches, and validation batches if there are any.

        Args:
            train: A loader, such as :func:`renaissance.data.loader` makes; or, alone, a committed
                :class:`renaissance.data.Preprocessor`: the task then takes batch size, seed and
                precision from its settings.
            val: Another loader.
        """
        self.require(Phase.PLANNING, "data")
        if isinstance(train, LoaderMaker) and val is None:
            self._maker, self._train, self._val = train, None, None
            return self
        self._maker = None
        self._train = check_source("training data", train)
        self._val = None if val is None else check_source("validation data", val)
        return self

    def on_epoch(self, listener: Callable[[EpochRecord], Any]) -> DeepLearningTask:
        """Call ``listener`` with the record of every epoch."""
        self.require(Phase.PLANNING, "on_epoch")
        if not callable(listener):
            raise TypeError(f"listener is {listener!r}, expected a function of an EpochRecord")
        self._listeners.append(listener)
        return self

    # -- life cycle -------------------------------------------------------------------------------

    @property
    def program(self) -> Any:
        """The compiled model, a :class:`renaissance.program.Program`.

        Raises:
            PhaseError: memory has not been planned yet.
        """
        return self._built("program").program

    def finalize_memory(self) -> None:
        """Plan shapes and memory: what is configured stands. ``compile`` does this too.

        Raises:
            PhaseError: the task has left PLANNING.
            ValueError, ShapeError: something is missing, or does not fit together; the task stays
                in PLANNING.
        """
        self.require(Phase.PLANNING, "finalize_memory")
        record = self._settings.record
        if self._maker is not None:
            self._train, self._val = make_loaders(self._maker, record)
        with on_device(record) as device:
            sources = place(self._train, self._val, self.options, device)
            built = build(self.options, record, *sources)
        super().finalize_memory()
        self._settings.lock(f"task {self.name!r}")
        self._build = built

    def compile(self, info: CompileInfo = CompileInfo.ARCH_PLAN) -> DeepLearningTask:
        """Compile every executable the run needs, and print what ``info`` asks for.

        Args:
            info: Flags; the plan of the architecture unless told otherwise.

        Raises:
            As :meth:`finalize_memory`.
        """
        if not isinstance(info, CompileInfo):
            raise TypeError(f"info is {info!r}, expected flags such as CompileInfo.ARCH_PLAN")
        if self.phase is Phase.PLANNING:
            self.finalize_memory()
        self.require(Phase.MEMORY_LOCKED, "compile")
        built = self._built("compile")
        display = self._display()
        for text in describe(built.program.graph, info):
            display.line(f"{text}\n")
        with on_device(built.settings):
            built.compile_executables()
        self._advance("compile", Phase.COMPILED)
        return self

    def dry_run(self) -> DeepLearningTask:
        """Run every executable once on blank pictures and print its time; nothing is kept.

        Raises:
            PhaseError: the task is not compiled.
        """
        self.require(Phase.COMPILED, "dry_run")
        built = self._built("dry_run")
        with on_device(built.settings):
            for blank in built.dry_run():
                self._display().line(f"dry run: {blank}")
        return self

    def run(self) -> TrainingResult:
        """Train. A second call trains again, from the same start.

        Returns:
            The best scores, every epoch's record, and the hash of the final parameters.

        Raises:
            PhaseError: the task is not compiled.
            TrainingInterrupted: Ctrl-C, after the step in progress was finished and everything
                measured was written; uncaught, it ends the process with exit code 130.
            TrainingDiverged: too many steps in a row had a non-finite gradient.
        """
        self.require(Phase.COMPILED, "run")
        built = self._built("run")
        with on_device(built.settings) as device, StopOnInterrupt() as stop:
            state, first_epoch, best_top1 = self._start(built)
            directory = RunDirectory.create(self._runs, self.name) if self._runs else None
            if directory is not None:
                directory.write_config(built.as_dict() | {"name": self.name, "device": str(device)})
            training = Training(
                options=self.options,
                settings=built.settings,
                program=built.program,
                frozen_program=built.frozen_program,
                train=built.train,
                val=built.val,
                evaluator=built.evaluator,
                display=self._display(),
                directory=directory,
                listeners=tuple(self._listeners),
                best_top1=best_top1,
            )
            started = time.perf_counter()
            result = training.run(state, first_epoch, stop)
            seconds = time.perf_counter() - started
        return self._finish(result, seconds, directory)

    def _start(self, built: Build) -> tuple[Any, int, float | None]:
        state = built.program.init(built.settings.seed)
        if self.options.resume_from is None:
            return state, 1, None
        checkpoint = load_checkpoint(self.options.resume_from)
        if checkpoint.epoch >= self.options.total_epochs:
            raise ValueError(
                f"{checkpoint.path}: written after epoch {checkpoint.epoch}, expected one before "
                f"the last of {self.options.total_epochs} epochs"
            )
        best_top1 = checkpoint.header.get("best_top1")
        return checkpoint.restore(state), checkpoint.epoch + 1, best_top1

    def _finish(
        self, result: TrainingResult, seconds: float, directory: RunDirectory | None
    ) -> TrainingResult:
        place = None
        if directory is not None:
            place = str(directory.path)
            draw_curve(result.records, directory.curve, self.name)
        self._display().line(summary(result, seconds=seconds, directory=place))
        if result.interrupted:
            raise TrainingInterrupted(result)
        return result

    # -- helpers ----------------------------------------------------------------------------------

    def _built(self, call: str) -> Build:
        if self._build is None:
            self.require(Phase.MEMORY_LOCKED, call)
            raise AssertionError("a locked task has a build")
        return self._build

    def _display(self) -> Display:
        return Display(quiet=self._quiet)
