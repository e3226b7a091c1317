"""The epochs of a training: train, validate, write down, keep what was asked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from renaissance.core.settings import GlobalSettings
from renaissance.core.types import Region
from renaissance.lowering.state import ArrayState
from renaissance.program import Program
from renaissance.task.averaging import adopt_average
from renaissance.task.checkpoint import save_checkpoint
from renaissance.task.evaluation import Evaluator
from renaissance.task.interrupt import StopOnInterrupt
from renaissance.task.metrics import EpochRecord, MetricsFile, Scores, TrainingResult, best_of
from renaissance.task.options import TrainingOptions
from renaissance.task.progress import Display, EpochTable
from renaissance.task.resolution import shrink
from renaissance.task.run_directory import RunDirectory
from renaissance.task.source import BatchSource, StackedSource
from renaissance.task.steps import Batch, steps_in, train_on

# Steps in flight: the host prepares the next batches while the device works, but never so many that
# Ctrl-C or the bar would lag behind.
_AHEAD = 2
# Steps between looks at the overflow counter; a look waits for the device.
_PROGRESS_CHECK = 50


@dataclass
class Training:
    """One run over all epochs.

    Attributes:
        options: What to do.
        settings: Seed and resolution.
        program: The compiled model.
        frozen_program: The same with its first layer frozen; None if it never is.
        train: Training batches.
        val: Validation batches; None: no validation.
        evaluator: Validates the program's states.
        display: Where lines go.
        directory: Where files go; None: nowhere.
        listeners: Called with each epoch's record.
        records: The epochs so far.
        steps_run: Training steps so far.
        best_top1: Best validation top-1 so far, that of a resumed run's first part included.
    """

    options: TrainingOptions
    settings: GlobalSettings
    program: Program
    frozen_program: Program | None
    train: BatchSource
    val: BatchSource | None
    evaluator: Evaluator
    display: Display
    directory: RunDirectory | None
    listeners: tuple[Callable[[EpochRecord], Any], ...] = ()
    records: list[EpochRecord] = field(default_factory=list)
    steps_run: int = 0
    best_top1: float | None = None

    def run(self, state: ArrayState, first_epoch: int, stop: StopOnInterrupt) -> TrainingResult:
        """Train from ``state`` until the last epoch, the target, or Ctrl-C.

        Args:
            state: Given up.
            first_epoch: Counted from 1.
            stop: Asked after every step.
        """
        self.display.line(self._table.header())
        file = MetricsFile(self.directory.metrics) if self.directory else None
        reached = False
        try:
            for epoch in range(first_epoch, self.options.total_epochs + 1):
                state, record = self._epoch(state, epoch, stop)
                if record is not None:
                    self._write_down(record, file)
                if stop.requested:
                    break
                self._save(state, epoch)
                reached = self._target_reached(self.records[-1])
                if reached:
                    break
        finally:
            self.display.close_bar()
            if file is not None:
                file.close()
        return best_of(
            tuple(self.records),
            sha256=self.program.sha256(state),
            stopped_early=reached,
            interrupted=stop.requested,
        )

    @cached_property
    def _table(self) -> EpochTable:
        groups = ["train"]
        if self.val is not None:
            groups.append("val")
            if self.options.effective_ema_decay is not None:
                groups.append("ema")
        return EpochTable(self.options.total_epochs, groups, self.options.metrics)

    # -- one epoch --------------------------------------------------------------------------------

    def _epoch(
        self, state: ArrayState, epoch: int, stop: StopOnInterrupt
    ) -> tuple[ArrayState, EpochRecord | None]:
        started = time.perf_counter()
        if self.options.use_sema:
            state = adopt_average(state)
        state, trained = self._train(state, epoch, stop)
        if trained is None:
            return state, None
        scores = self._validate(state, epoch, stop)
        record = EpochRecord(
            epoch=epoch, seconds=time.perf_counter() - started, **trained, **scores
        )
        return state, record

    def _train(
        self, state: ArrayState, epoch: int, stop: StopOnInterrupt
    ) -> tuple[ArrayState, dict[str, Any] | None]:
        program = self._program(epoch)
        total = len(self.train)
        state = program.clear_metrics(state)
        skipped_before = _skipped(state)
        in_flight: deque[Any] = deque()
        steps = 0
        self.display.open_bar(f"epoch {epoch}/{self.options.total_epochs}", total)
        started = time.perf_counter()
        for batch in self._batches(epoch):
            state, metrics = train_on(program, state, batch)
            taken = steps_in(batch)
            steps += taken
            check_due = self.steps_run % _PROGRESS_CHECK + taken >= _PROGRESS_CHECK
            self.steps_run += taken
            # what the device still owes, without fetching it
            in_flight.append(getattr(metrics, "array", metrics))
            if len(in_flight) > _AHEAD:
                jax.block_until_ready(in_flight.popleft())
            if check_due and steps < total:
                program.check_progress(state)
            self.display.advance(taken)
            if stop.requested:
                break
        jax.block_until_ready(state)
        seconds = time.perf_counter() - started
        self.display.close_bar()
        if not steps:
            return state, None
        program.check_progress(state)
        means = program.epoch_metrics(state)
        return state, {
            "steps": steps,
            "samples": means["count"],
            "train_loss": means["loss"],
            "train_top1": means["top1"],
            "train_top5": means["top5"],
            "lr": float(np.ravel(metrics["lr"])[-1]),
            "images_per_second": self._samples(steps) / seconds,
            "skipped_steps": _skipped(state) - skipped_before,
            "complete": steps == total,
        }

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """The epoch's batches, or the rows they are made from; smaller where the resolution is
        still the begin's."""
        if isinstance(self.train, StackedSource) and self.options.progressive is None:
            yield from self.train.rows(epoch - 1)
            return
        small = self.options.begins_small(epoch)
        progressive, sides = self.options.progressive, self.settings.train_resolution
        for index, (images, labels) in enumerate(self.train.batches(epoch - 1)):
            if small and progressive is not None and sides is not None:
                seed = self.settings.seed
                images = shrink(
                    images, sides[0], progressive.how, seed=seed, epoch=epoch - 1, batch=index
                )
            yield images, labels

    def _program(self, epoch: int) -> Program:
        if self.frozen_program is not None and self.options.freezes(epoch):
            return self.frozen_program
        return self.program

    def _samples(self, steps: int) -> int:
        """Samples in the first ``steps`` batches of an epoch, skipped ones included."""
        return min(steps * self.train.batch_size, len(self.train.dataset))

    def _validate(self, state: ArrayState, epoch: int, stop: StopOnInterrupt) -> dict[str, Any]:
        if self.val is None or stop.requested or not self.options.validates(epoch):
            return {}
        found: dict[str, Any] = {}
        for prefix, ema in (("val", False), ("ema", True)):
            if ema and self.options.effective_ema_decay is None:
                continue
            scores = self.evaluator.scores(state, self.val.batches(0), ema=ema, stop=stop)
            if scores is None:
                return {}
            found |= _columns(prefix, scores)
        return found

    # -- what stays -------------------------------------------------------------------------------

    def _write_down(self, record: EpochRecord, file: MetricsFile | None) -> None:
        self.records.append(record)
        if file is not None:
            file.write(record)
        self.display.line(self._table.row(record))
        for listener in self.listeners:
            listener(record)

    def _save(self, state: ArrayState, epoch: int) -> None:
        latest = self.records[-1].val_top1
        improved = latest is not None and (self.best_top1 is None or latest > self.best_top1)
        if improved:
            self.best_top1 = latest
        for wanted, path in self.options.save_epochs:
            if wanted == epoch:
                width = len(str(self.options.total_epochs))
                self._write_checkpoint(state, epoch, path, f"epoch-{epoch:0{width}d}.npz")
        if improved and self.options.save_best:
            self._write_checkpoint(state, epoch, self.options.best_path, "best.npz")

    def _write_checkpoint(self, state: ArrayState, epoch: int, path: Any, default: str) -> None:
        target = path if path is not None else self.directory and self.directory.path / default
        if target:
            model = self.program.config.blueprint.name
            extra = {"model": model, "seed": self.settings.seed, "best_top1": self.best_top1}
            save_checkpoint(target, state, epoch=epoch, extra=extra)

    def _target_reached(self, record: EpochRecord) -> bool:
        target = self.options.target_top1
        if target is None:
            return False
        return any(s is not None and s >= target for s in (record.val_top1, record.ema_top1))


def _columns(prefix: str, scores: Scores) -> dict[str, float]:
    return {
        f"{prefix}_loss": scores.loss,
        f"{prefix}_top1": scores.top1,
        f"{prefix}_top5": scores.top5,
    }


def _skipped(state: ArrayState) -> int:
    return int(state[Region.S_SCALAR_INT32]["skipped_steps"])
