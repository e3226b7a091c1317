"""The first Ctrl-C asks, the second one interrupts."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from renaissance.task.interrupt import StopOnInterrupt, TrainingInterrupted
from renaissance.task.metrics import TrainingResult


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_asks_the_second_interrupts(capfd):
    before = signal.getsignal(signal.SIGINT)
    with StopOnInterrupt() as stop:
        assert not stop.requested
        press()
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before
    assert "stopping after the current step" in capfd.readouterr().err


def test_in_another_thread_it_never_asks():
    seen = []

    def work() -> None:
        with StopOnInterrupt() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_an_interrupted_script_ends_with_130():
    error = TrainingInterrupted(TrainingResult(interrupted=True))
    assert error.code == 130
    assert error.result.interrupted
