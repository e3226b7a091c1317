"""What a training measures: sums over steps, a record per epoch, the best of a run, a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from renaissance.core.errors import FormatError


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over a set of samples: loss in nats, top-1 and top-5 as fractions."""

    loss: float
    top1: float
    top5: float
    samples: int


@dataclass(slots=True)
class ScoreSums:
    """Sums over batches, so that the epoch's means do not depend on the batch sizes."""

    loss: float = 0.0
    top1: float = 0.0
    top5: float = 0.0
    samples: int = 0
    steps: int = 0
    skipped: int = 0

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add one step: means ``loss``, ``top1``, ``top5`` over ``count`` samples.

        A skipped step is counted, but its scores, which may not be numbers, are not.
        """
        self.steps += 1
        if bool(metrics.get("skipped", False)):
            self.skipped += 1
            return
        count = int(metrics["count"])
        self.loss += float(metrics["loss"]) * count
        self.top1 += float(metrics["top1"]) * count
        self.top5 += float(metrics["top5"]) * count
        self.samples += count

    def scores(self) -> Scores:
        """The means; NaN when nothing was added."""
        if not self.samples:
            return Scores(float("nan"), float("nan"), float("nan"), 0)
        n = self.samples
        return Scores(self.loss / n, self.top1 / n, self.top5 / n, n)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One row of the metrics file.

    Attributes:
        epoch: Counted from 1.
        steps: Training steps run; fewer than the epoch has if it was interrupted.
        samples: Training samples seen.
        train_loss: Mean loss over them, as trained (smoothed); likewise top-1 and top-5.
        val_loss: Validation with the main weights; None in epochs without validation.
        ema_loss: Validation with the EMA weights, where they are kept.
        lr: Learning rate of the last step.
        images_per_second: Training samples over training time.
        seconds: Time of the epoch, validation included.
        skipped_steps: Steps that changed nothing because a gradient overflowed.
        complete: Whether every step of the epoch was run.
    """

    epoch: int
    steps: int
    samples: int
    train_loss: float
    train_top1: float
    train_top5: float
    lr: float
    images_per_second: float
    seconds: float
    val_loss: float | None = None
    val_top1: float | None = None
    val_top5: float | None = None
    ema_loss: float | None = None
    ema_top1: float | None = None
    ema_top5: float | None = None
    skipped_steps: int = 0
    complete: bool = True


COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(EpochRecord))


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The best of a run; fractions, None where nothing was validated or no EMA is kept.

    Attributes:
        best_top1: Best validation top-1 of the main weights.
        best_top5: Best validation top-5 of the main weights.
        best_ema_top1: Best validation top-1 of the EMA weights.
        best_ema_top5: Best validation top-5 of the EMA weights.
        best_epoch: Epoch of :attr:`best_top1`, counted from 1; the first one of a tie.
        records: Every epoch, in order.
        sha256: Hash of the final parameters.
        stopped_early: Whether the target of ``early_stop_by_top1`` ended the run.
        interrupted: Whether Ctrl-C did.
    """

    best_top1: float | None = None
    best_top5: float | None = None
    best_ema_top1: float | None = None
    best_ema_top5: float | None = None
    best_epoch: int | None = None
    records: tuple[EpochRecord, ...] = field(default=(), repr=False)
    sha256: str = ""
    stopped_early: bool = False
    interrupted: bool = False


def best_of(records: tuple[EpochRecord, ...], **outcome: Any) -> TrainingResult:
    """The result of a run from its records; ``outcome`` fills the remaining fields."""

    def best(column: str) -> float | None:
        return max((v for r in records if (v := getattr(r, column)) is not None), default=None)

    top1 = best("val_top1")
    return TrainingResult(
        best_top1=top1,
        best_top5=best("val_top5"),
        best_ema_top1=best("ema_top1"),
        best_ema_top5=best("ema_top5"),
        best_epoch=next(
            (r.epoch for r in records if top1 is not None and r.val_top1 == top1), None
        ),
        records=records,
        **outcome,
    )


class MetricsFile:
    """A CSV file with one row per epoch, on disk as soon as it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._writer.writeheader()
        self._file.flush()

    def write(self, record: EpochRecord) -> None:
        """Append one row; absent values are empty cells."""
        row = {k: "" if v is None else v for k, v in asdict(record).items()}
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        self._file.close()


def _value(column: str, text: str) -> Any:
    if text == "":
        return None
    if column == "complete":
        return text == "True"
    whole = column in ("epoch", "steps", "samples", "skipped_steps")
    return int(text) if whole else float(text)


def read_metrics(path: Path) -> list[EpochRecord]:
    """Read a metrics file back.

    Raises:
        FormatError: the header is not that of a metrics file, or a row does not fit it.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FormatError(
                f"{path}: columns are {reader.fieldnames!r}, expected {', '.join(COLUMNS)}"
            )
        records = []
        for number, row in enumerate(reader, start=2):
            try:
                records.append(EpochRecord(**{k: _value(k, v) for k, v in row.items()}))
            except (TypeError, ValueError) as error:
                raise FormatError(f"{path}: line {number}: {error}") from error
    return records
