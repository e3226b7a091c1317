"""Sums over batches, the best of a run, and the metrics file."""

from __future__ import annotations

import math

import pytest

from renaissance.core.errors import FormatError
from renaissance.task.metrics import (
    COLUMNS,
    EpochRecord,
    MetricsFile,
    ScoreSums,
    best_of,
    read_metrics,
)


def record(epoch: int, **values) -> EpochRecord:
    defaults = {
        "steps": 10,
        "samples": 100,
        "train_loss": 1.5,
        "train_top1": 0.5,
        "train_top5": 0.9,
        "lr": 0.1,
        "images_per_second": 1000.0,
        "seconds": 0.1,
    }
    return EpochRecord(epoch=epoch, **{**defaults, **values})


def test_the_epoch_mean_does_not_depend_on_the_batch_sizes():
    sums = ScoreSums()
    for count, loss in ((4, 1.0), (4, 1.0), (2, 4.0)):
        sums.add({"loss": loss, "top1": 0.5, "top5": 1.0, "count": count})
    scores = sums.scores()
    assert scores.loss == pytest.approx(1.6)
    assert (scores.top1, scores.top5, scores.samples, sums.steps) == (0.5, 1.0, 10, 3)


def test_a_skipped_step_counts_but_does_not_spoil_the_means():
    sums = ScoreSums()
    sums.add({"loss": 1.0, "top1": 0.5, "top5": 1.0, "count": 4, "skipped": False})
    sums.add({"loss": math.inf, "top1": 0.0, "top5": 0.0, "count": 4, "skipped": True})
    assert (sums.steps, sums.skipped, sums.scores().loss) == (2, 1, 1.0)


def test_nothing_measured_is_not_a_number():
    assert math.isnan(ScoreSums().scores().top1)


def test_the_best_epoch_is_the_first_of_a_tie():
    result = best_of(
        (
            record(1, val_top1=0.8, val_top5=0.9),
            record(2),
            record(3, val_top1=0.95, val_top5=0.97, ema_top1=0.96, ema_top5=0.99),
            record(4, val_top1=0.95, val_top5=0.98, ema_top1=0.94, ema_top5=1.0),
        ),
        sha256="ab",
    )
    assert (result.best_top1, result.best_top5, result.best_epoch) == (0.95, 0.98, 3)
    assert (result.best_ema_top1, result.best_ema_top5) == (0.96, 1.0)
    assert result.sha256 == "ab"


def test_without_validation_there_is_no_best():
    result = best_of((record(1),))
    assert (result.best_top1, result.best_epoch, result.best_ema_top1) == (None, None, None)


def test_the_file_reads_back_as_it_was_written(tmp_path):
    rows = [record(1), record(2, val_top1=0.25, val_loss=0.1, complete=False, skipped_steps=3)]
    file = MetricsFile(tmp_path / "metrics.csv")
    for row in rows:
        file.write(row)
    # before it is closed: a crash later loses nothing
    assert read_metrics(file.path) == rows
    file.close()
    file.close()
    assert file.path.read_text().splitlines()[0] == ",".join(COLUMNS)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match=r"other\.csv: columns are \['a', 'b'\], expected epoch"):
        read_metrics(path)
    path.write_text(",".join(COLUMNS) + "\n" + "x" + "," * (len(COLUMNS) - 1) + "\n")
    with pytest.raises(FormatError, match="line 2"):
        read_metrics(path)
