"""What a person sees while a task runs: a bar on a terminal, a line per epoch, a summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from tqdm import tqdm

from renaissance.task.metrics import EpochRecord, TrainingResult


def percent(fraction: float | None) -> str:
    """A fraction as a percentage, ``"-"`` for None."""
    return "-" if fraction is None else f"{100 * fraction:.2f} %"


@dataclass(frozen=True, slots=True)
class EpochTable:
    """The table whose rows are epochs.

    Attributes:
        total_epochs: Of the run.
        groups: Which scores it has: "train", "val", "ema".
        scores: Which of "loss", "top1", "top5" each group shows.
    """

    total_epochs: int
    groups: Sequence[str] = ("train", "val")
    scores: Sequence[str] = ("loss", "top1", "top5")

    def header(self) -> str:
        """The line above the rows."""
        cells = [f"{'epoch':>{self._epoch_width}}"]
        for group in self.groups:
            for score in self.scores:
                title = score if score == "loss" else f"top-{score[3:]} %"
                first = score == self.scores[0]
                cells.append(f"{f'{group} {title}':>13}" if first else f"{title:>8}")
        cells += [f"{'lr':>9}", f"{'images/s':>10}", f"{'time':>8}"]
        return " ".join(cells)

    def row(self, record: EpochRecord) -> str:
        """An epoch's line."""
        digits = len(str(self.total_epochs))
        epoch = f"{record.epoch:>{digits}}/{self.total_epochs}"
        cells = [f"{epoch:>{self._epoch_width}}"]
        for group in self.groups:
            for score in self.scores:
                value = getattr(record, f"{group}_{score}")
                text = "-" if value is None else _score_text(score, value)
                cells.append(f"{text:>{13 if score == self.scores[0] else 8}}")
        cells.append(f"{record.lr:>9.3e}")
        cells.append(f"{record.images_per_second:>10,.0f}")
        cells.append(f"{record.seconds:>6.2f} s")
        if record.skipped_steps:
            cells.append(f" {record.skipped_steps} steps skipped")
        if not record.complete:
            cells.append(f" interrupted after {record.steps} steps")
        return " ".join(cells)

    @property
    def _epoch_width(self) -> int:
        return max(len("epoch"), 2 * len(str(self.total_epochs)) + 1)


def _score_text(score: str, value: float) -> str:
    return f"{value:.4f}" if score == "loss" else f"{100 * value:.2f}"


class Display:
    """Prints lines to ``out`` and draws a bar on ``err`` if that is a terminal.

    Args:
        quiet: Print nothing at all.
        out: Where lines go; standard output unless given.
        err: Where the bar goes; standard error unless given.
    """

    def __init__(
        self, *, quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.quiet = quiet
        self._out = out
        self._err = err
        self._bar: Any = None

    def line(self, text: str) -> None:
        """Print one or more lines; they reach a pipe at once."""
        if not self.quiet:
            print(text, file=self._out or sys.stdout, flush=True)

    def open_bar(self, title: str, steps: int) -> None:
        """Start a bar of ``steps`` steps; none when nobody watches a terminal."""
        err = self._err or sys.stderr
        if not self.quiet and err.isatty():
            self._bar = tqdm(total=steps, desc=title, unit="step", leave=False, file=err)

    def advance(self, steps: int = 1) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update(steps)

    def close_bar(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def summary(result: TrainingResult, *, seconds: float, directory: str | None) -> str:
    """The lines at the end of a run; the last one says ``best top-1``."""
    complete = sum(r.complete for r in result.records)
    ending = (
        "interrupted"
        if result.interrupted
        else "target reached"
        if result.stopped_early
        else "done"
    )
    lines = [f"{ending} after {complete} epochs in {seconds:.1f} s"]
    if directory is not None:
        lines.append(f"kept in {directory}")
    lines.append(f"parameters SHA-256 {result.sha256}")
    if result.best_ema_top1 is not None:
        lines.append(
            f"best EMA top-1 {percent(result.best_ema_top1)}  "
            f"best EMA top-5 {percent(result.best_ema_top5)}"
        )
    if result.best_top1 is None:
        lines.append("best top-1 -  (nothing was validated)")
    else:
        lines.append(
            f"best top-1 {percent(result.best_top1)}  best top-5 {percent(result.best_top5)}  "
            f"at epoch {result.best_epoch}"
        )
    return "\n".join(lines)
