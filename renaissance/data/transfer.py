"""TransferStation: two host slots; one fills while the other travels and the device computes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from renaissance.data import buffers
from renaissance.data.loader import Batch, Loader
from renaissance.data.prefetch import Prefetcher

Handle = TypeVar("Handle")


class Event(NamedTuple):
    """One entry of the trace: what happened to which batch, from when to when (seconds).

    ``kind`` is "fill" (samples into the slot), "wait" (for the copy that still reads the slot),
    "put" (the copy is started) or "use" (the consumer works).
    """

    kind: str
    slot: str
    batch: int
    begin: float
    end: float


@dataclass(slots=True)
class Slot(Generic[Handle]):
    """A host buffer for one batch, on whole pages, and the last copy made from it."""

    name: str
    images: np.ndarray
    labels: np.ndarray
    copied: threading.Semaphore
    handle: Handle | None = None


class TransferStation(Generic[Handle]):
    """Moves a loader's batches to a device through two slots, A and B.

    A thread fills the slots in turn. A slot is filled again only after the copy from it has been
    started by the consumer *and* has been waited for, so no copy reads a batch half overwritten.
    The copy of a batch is started before the batch ahead of it is given out: one that is started
    behind the steps in flight is not hidden by them (``benchmarks/notes_data.md``).
    """

    def __init__(
        self,
        loader: Loader,
        put: Callable[[Batch], Handle],
        wait: Callable[[Handle], object] = lambda handle: None,
        *,
        pinned: bool = False,
        keep_trace: bool = False,
    ) -> None:
        """Make the slots.

        Args:
            loader: Where the batches come from.
            put: Starts a copy of ``(images, labels)`` to the device and returns at once what stands
                for the copy; it must never share the slot's memory. ``copy_to_device`` of
                device_pipeline is one.
            wait: Returns when the copy has read its slot; ``jax.block_until_ready`` is one. Not
                needed if ``put`` returns only then.
            pinned: Lock the slots' pages in memory, so that a CUDA device copies from them by
                itself; :attr:`pinned` says whether that was possible.
            keep_trace: Record when what happened, in :attr:`trace`.
        """
        self._loader = loader
        self._put = put
        self._wait = wait
        self._keep_trace = keep_trace
        self.trace: list[Event] = []
        shape = (loader.batch_size, *loader.image_shape)
        places = [
            (
                _slot_memory(shape, loader.preparation.dtype, pinned),
                _slot_memory((loader.batch_size,), np.dtype(np.int32), pinned),
            )
            for _ in "AB"
        ]
        self.pinned = all(locked for place in places for _, locked in place)
        self._slots: list[Slot[Handle]] = [
            Slot(name, images, labels, threading.Semaphore(1))
            for name, ((images, _), (labels, _)) in zip("AB", places, strict=True)
        ]

    def batches(self, epoch: int) -> Iterator[Handle]:
        """What ``put`` returned, for every batch of an epoch, in order.

        One epoch runs at a time; leaving the loop early ends the thread.
        """
        for slot in self._slots:
            if slot.handle is not None:
                self._wait(slot.handle)
            slot.handle, slot.copied = None, threading.Semaphore(1)
        stop = threading.Event()
        filled = Prefetcher(self._fill(epoch, stop), 1)
        try:
            sent = None
            for number, (slot, count) in enumerate(filled):
                begin = time.perf_counter()
                handle = self._put((slot.images[:count], slot.labels[:count]))
                slot.handle = handle
                slot.copied.release()
                self._note("put", slot, number, begin)
                if sent is not None:
                    yield from self._use(*sent)
                sent = (slot, number, handle)
            if sent is not None:
                yield from self._use(*sent)
        finally:
            stop.set()
            filled.close()

    def _use(self, slot: Slot[Handle], number: int, handle: Handle) -> Iterator[Handle]:
        begin = time.perf_counter()
        yield handle
        self._note("use", slot, number, begin)

    def _fill(self, epoch: int, stop: threading.Event) -> Iterator[tuple[Slot[Handle], int]]:
        ids = self._loader.id_batches(epoch)
        for number, batch in enumerate(ids):
            slot = self._slots[number % 2]
            begin = time.perf_counter()
            while not slot.copied.acquire(timeout=0.05):
                if stop.is_set():
                    return
            if slot.handle is not None:
                self._wait(slot.handle)
                slot.handle = None
            self._note("wait", slot, number, begin)
            begin = time.perf_counter()
            for ahead in ids[number : number + 2]:
                self._loader.engine.announce(ahead)
            count = len(batch)
            self._loader.fill(batch, epoch, slot.images[:count], slot.labels[:count])
            self._note("fill", slot, number, begin)
            yield slot, count

    def _note(self, kind: str, slot: Slot[Handle], batch: int, begin: float) -> None:
        if self._keep_trace:
            self.trace.append(Event(kind, slot.name, batch, begin, time.perf_counter()))

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write :attr:`trace` for a browser's trace viewer (chrome://tracing, Perfetto)."""
        entries = [
            {
                "name": f"{event.kind} {event.batch}",
                "ph": "X",
                "pid": 0,
                "tid": f"slot {event.slot}" if event.kind != "use" else "consumer",
                "ts": event.begin * 1e6,
                "dur": (event.end - event.begin) * 1e6,
            }
            for event in self.trace
        ]
        Path(path).write_text(json.dumps({"traceEvents": entries}))


def _slot_memory(shape: tuple[int, ...], dtype: np.dtype, pinned: bool) -> tuple[np.ndarray, bool]:
    return buffers.pinned(shape, dtype) if pinned else (buffers.paged(shape, dtype), False)
