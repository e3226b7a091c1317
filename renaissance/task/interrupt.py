"""Ctrl-C that waits for the step in progress: nothing measured is lost."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType

from renaissance.task.metrics import TrainingResult

EXIT_INTERRUPTED = 130  # 128 + SIGINT, what a shell expects


class TrainingInterrupted(SystemExit):
    """Raised by a run that Ctrl-C stopped, after everything measured was written.

    It ends a script with exit code 130 and no traceback; whoever catches it finds the result.

    Attributes:
        result: The result up to the interruption.
    """

    def __init__(self, result: TrainingResult) -> None:
        super().__init__(EXIT_INTERRUPTED)
        self.result = result


class StopOnInterrupt:
    """While entered, the first SIGINT only sets :attr:`requested`; a second one interrupts at once.

    Outside the main thread, where Python cannot catch signals, it never asks to stop.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: object = None

    def __enter__(self) -> StopOnInterrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        # print() must not be entered again from a signal that arrives while it runs
        with suppress(OSError):
            os.write(2, b"\nstopping after the current step (Ctrl-C again stops at once)\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]
            self._previous = None
