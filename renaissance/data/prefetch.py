"""Preparing ahead: an iterator that runs on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from renaissance.data.workers import PATIENCE_SECONDS

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Runs an iterator on a thread of its own, a few items ahead; errors are raised in its place.

    The thread ends with the last item, with :meth:`close`, or when the last reference is dropped.
    """

    def __init__(self, source: Iterator[Item], ahead: int) -> None:
        self._queue: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(ahead)
        self._stop = threading.Event()
        self._done = False
        self._thread = threading.Thread(
            target=pump,
            args=(source, self._queue, self._stop),
            name="renaissance-prefetch",
            daemon=True,
        )
        self._thread.start()

    def __iter__(self) -> Prefetcher[Item]:
        return self

    def __next__(self) -> Item:
        if self._done:
            raise StopIteration
        is_item, value = self._take()
        if is_item:
            return value  # type: ignore[return-value]
        self.close()
        if value is not None:
            raise value  # type: ignore[misc]
        raise StopIteration

    def _take(self) -> tuple[bool, Item | BaseException | None]:
        while True:  # short waits: an interrupt is noticed whichever thread the system gives it to
            try:
                return self._queue.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                if self._stop.is_set():  # closed from another thread
                    return False, None

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._done = True
        self._stop.set()
        self._thread.join()

    def __del__(self) -> None:
        self._stop.set()


def pump(source: Iterator[Item], target: queue.Queue, stop: threading.Event) -> None:
    """Move items from an iterator to a queue until it ends, fails, or is told to stop."""

    def put(entry: tuple[bool, object]) -> bool:
        while not stop.is_set():
            try:
                target.put(entry, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    try:
        for item in source:
            if not put((True, item)):
                return
        put((False, None))
    except BaseException as error:  # whatever it is, it belongs to the consumer
        put((False, error))
    finally:
        close: Callable[[], None] | None = getattr(source, "close", None)
        if close is not None:
            close()
