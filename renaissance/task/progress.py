"""What a person sees while a task runs: a bar on a terminal, a line per epoch, a summary."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from tqdm import tqdm

from renaissance.task.metrics import EpochRecord, TrainingResult


def percent(fraction: float | None) -> str:
    """A fraction as a percentage, ``"-"`` for None."""
    return "-" if fraction is None else f"{100 * fraction:.2f} %"


class Display:
    """Prints lines to ``out`` and draws a bar on ``err`` if that is a terminal.

    Args:
        quiet: Print nothing at all.
        columns: Scores shown in an epoch's line, out of ``loss``, ``top1``, ``top5``.
        out: Where lines go; standard output unless given.
        err: Where the bar goes; standard error unless given.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        columns: tuple[str, ...] = ("loss", "top1", "top5"),
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self.quiet = quiet
        self.columns = columns
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

    def epoch(self, record: EpochRecord, total_epochs: int) -> None:
        """Print an epoch's line."""
        self.line(epoch_line(record, total_epochs, self.columns))


def epoch_line(
    record: EpochRecord, total_epochs: int, columns: tuple[str, ...] = ("loss", "top1", "top5")
) -> str:
    """An epoch in one line: scores, learning rate, images per second, seconds."""
    width = len(str(total_epochs))
    parts = [f"epoch {record.epoch:{width}d}/{total_epochs}"]
    for title, prefix in (("train", "train"), ("val", "val"), ("ema", "ema")):
        scores = _scores(record, prefix, columns)
        if scores:
            parts.append(f"{title} {scores}")
    parts.append(f"lr {record.lr:.3e}")
    parts.append(f"{record.images_per_second:,.0f} images/s")
    parts.append(f"{record.seconds:.2f} s")
    if record.skipped_steps:
        parts.append(f"{record.skipped_steps} steps skipped")
    if not record.complete:
        parts.append(f"interrupted after {record.steps} steps")
    return "  ".join(parts)


def _scores(record: EpochRecord, prefix: str, columns: tuple[str, ...]) -> str:
    texts = []
    for column in columns:
        value = getattr(record, f"{prefix}_{column}")
        if value is None:
            continue
        if column == "loss":
            texts.append(f"loss {value:.4f}")
        else:
            texts.append(f"top-{column[3:]} {percent(value)}")
    return " ".join(texts)


def summary(result: TrainingResult, *, seconds: float, directory: str | None) -> str:
    """The lines at the end of a run; one of them says ``best top-1``."""
    lines = []
    if result.best_top1 is None:
        lines.append("best top-1 -  (nothing was validated)")
    else:
        lines.append(
            f"best top-1 {percent(result.best_top1)}  best top-5 {percent(result.best_top5)}  "
            f"at epoch {result.best_epoch}"
        )
    if result.best_ema_top1 is not None:
        lines.append(
            f"best EMA top-1 {percent(result.best_ema_top1)}  "
            f"best EMA top-5 {percent(result.best_ema_top5)}"
        )
    complete = sum(r.complete for r in result.records)
    ending = (
        "interrupted"
        if result.interrupted
        else "target reached"
        if result.stopped_early
        else "done"
    )
    lines.append(f"{ending} after {complete} epochs in {seconds:.1f} s")
    if directory is not None:
        lines.append(f"kept in {directory}")
    lines.append(f"parameters SHA-256 {result.sha256}")
    return "\n".join(lines)
