"""Lines for people: one per epoch, a summary at the end, a bar only on a terminal."""

from __future__ import annotations

import io

from renaissance.task.metrics import EpochRecord, best_of
from renaissance.task.progress import Display, epoch_line, percent, summary

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


def test_an_epoch_is_one_line():
    assert epoch_line(RECORD, 30) == (
        "epoch  3/30  train loss 0.2500 top-1 90.00 % top-5 99.00 %  "
        "val loss 0.1250 top-1 97.50 % top-5 100.00 %  lr 1.000e-03  12,346 images/s  0.50 s"
    )


def test_only_the_chosen_scores_are_shown():
    assert "loss" not in epoch_line(RECORD, 30, ("top1",))
    assert "val top-1 97.50 %" in epoch_line(RECORD, 30, ("top1",))


def test_the_summary_names_the_best_and_the_hash():
    text = summary(best_of((RECORD,), sha256="c0ffee"), seconds=2.0, directory="runs/x")
    assert text.splitlines() == [
        "best top-1 97.50 %  best top-5 100.00 %  at epoch 3",
        "done after 1 epochs in 2.0 s",
        "kept in runs/x",
        "parameters SHA-256 c0ffee",
    ]


def test_a_run_without_validation_has_a_summary_too():
    text = summary(best_of(()), seconds=0.0, directory=None)
    assert text.startswith("best top-1 -")
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
    display.epoch(RECORD, 30)
    assert out.getvalue() == err.getvalue() == ""
