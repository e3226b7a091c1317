"""Lines for people: one per epoch, a summary at the end, a bar only on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from renaissance.task.metrics import EpochRecord, best_of
from renaissance.task.progress import Display, EpochTable, percent, summary

RECORD = EpochRecord(
    epoch=3,
    steps=12,
    samples=1200,
    train_loss=0.25,
    train_top1=0.9,
    train_top5=0.99,
    lr=1e-3,
    images_per_second=12345.6,
    seconds=0.5,
    val_loss=0.125,
    val_top1=0.975,
    val_top5=1.0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_epoch_is_a_row_under_a_header():
    table = EpochTable(30)
    assert table.header() == (
        "epoch    train loss  top-1 %  top-5 %      val loss  top-1 %  top-5 %"
        "        lr   images/s     time"
    )
    assert table.row(RECORD) == (
        " 3/30        0.2500    90.00    99.00        0.1250    97.50   100.00"
        " 1.000e-03     12,346   0.50 s"
    )


def test_header_and_rows_line_up_however_many_epochs():
    for epochs in (1, 30, 1000):
        for groups in (("train",), ("train", "val", "ema")):
            table = EpochTable(epochs, groups)
            assert len(table.header()) == len(table.row(RECORD))


def test_only_the_chosen_scores_are_shown():
    assert EpochTable(30, ("val",), ("top1",)).row(RECORD).split()[:2] == ["3/30", "97.50"]


def test_what_was_not_measured_is_a_dash():
    row = EpochTable(30, ("train", "val")).row(replace(RECORD, val_top1=None))
    assert row.split()[4:6] == ["0.1250", "-"]


def test_what_went_wrong_is_said_at_the_end_of_the_row():
    row = EpochTable(30).row(replace(RECORD, skipped_steps=2, complete=False))
    assert row.endswith("2 steps skipped  interrupted after 12 steps")


def test_the_summary_ends_with_the_best():
    text = summary(best_of((RECORD,), sha256="c0ffee"), seconds=2.0, directory="runs/x")
    assert text.splitlines() == [
        "done after 1 epochs in 2.0 s",
        "kept in runs/x",
        "parameters SHA-256 c0ffee",
        "best top-1 97.50 %  best top-5 100.00 %  at epoch 3",
    ]


def test_a_run_without_validation_has_a_summary_too():
    text = summary(best_of(()), seconds=0.0, directory=None)
    assert text.splitlines()[-1].startswith("best top-1 -")
    assert percent(None) == "-"


def test_the_bar_is_drawn_on_a_terminal_only():
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        display = Display(out=io.StringIO(), err=stream)
        display.open_bar("epoch 1/2", 4)
        display.advance(2)
        display.close_bar()
        assert ("epoch 1/2" in stream.getvalue()) is drawn


def test_quiet_prints_nothing():
    out, err = io.StringIO(), Terminal()
    display = Display(quiet=True, out=out, err=err)
    display.open_bar("epoch", 4)
    display.advance()
    display.close_bar()
    display.line("text")
    assert out.getvalue() == err.getvalue() == ""
