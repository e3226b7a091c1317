"""A pool of Python threads with static stride assignment, for libraries that release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import count as counter

from renaissance.core.errors import check_int

MOST_WORKERS = 4096
PATIENCE_SECONDS = 0.25


class ThreadWorkers:
    """Worker k of n takes items k, k + n, k + 2n, ...: which thread does what is fixed beforehand.

    Threads start when first needed and end with :meth:`close`. An exception in one stops the others
    after their current item and is raised where :meth:`run` was called, traceback and all.
    """

    def __init__(self, workers: int, bind_to: Sequence[int] = ()) -> None:
        self.workers = check_int("workers", workers, 1, MOST_WORKERS)
        numbers = counter()

        def bind() -> None:
            if bind_to and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, {bind_to[next(numbers) % len(bind_to)]})

        self._pool = ThreadPoolExecutor(self.workers, "renaissance-data", bind)

    def run(self, count: int, item: Callable[[int], None]) -> None:
        """Call ``item(i)`` for every i below ``count``, and return when all are done.

        Raises:
            Exception: What the first failing item (by position) among those that ran raised.
        """
        stop = threading.Event()

        def stride(first: int) -> None:
            for position in range(first, count, self.workers):
                if stop.is_set():
                    return
                item(position)

        tasks: list[Future[None]] = []
        try:
            for k in range(min(self.workers, count)):
                tasks.append(self._pool.submit(stride, k))
            pending = set(tasks)
            # short waits: an interrupt is noticed whichever thread the system gives it to
            while pending:
                done, pending = wait(pending, PATIENCE_SECONDS, FIRST_EXCEPTION)
                if any(task.exception() is not None for task in done):
                    break
        finally:  # also when the caller is interrupted
            stop.set()
            wait(tasks)
        for task in tasks:
            raise_from(task)

    def close(self) -> None:
        """End the threads; waits for items in progress."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def raise_from(task: Future[None]) -> None:
    """Raise a task's exception here, if it had one."""
    error = task.exception()
    if error is not None:
        raise error
