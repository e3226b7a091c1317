"""The transfer station: every batch once, in order, from slots never refilled too early."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
from data_samples import noise_dataset

from renaissance.core.errors import FormatError
from renaissance.data import RandomHorizontalFlip, TransferStation, loader


def batches_of(n: int = 23, size: int = 5, **how):
    data = noise_dataset(n, 6, 5, 3)
    return loader(data, batch_size=size, shuffle=True, transforms=RandomHorizontalFlip(), **how)


def test_what_travels_is_what_the_loader_gives() -> None:
    source = batches_of()
    station = TransferStation(source, lambda batch: tuple(part.copy() for part in batch))
    for epoch in range(3):
        travelled, direct = list(station.batches(epoch)), list(source.batches(epoch))
        assert [len(labels) for _, labels in travelled] == [5, 5, 5, 5, 3]
        for (images, labels), (expected, expected_labels) in zip(travelled, direct, strict=True):
            np.testing.assert_array_equal(images, expected)
            np.testing.assert_array_equal(labels, expected_labels)


class SlowCopy:
    """A copy that reads its slot late, on a thread of its own: what a device does."""

    def __init__(self, batch, delay: float) -> None:
        self._batch = batch
        self._delay = delay
        self._thread = threading.Thread(target=self._copy)
        self._thread.start()

    def _copy(self) -> None:
        time.sleep(self._delay)
        self.result = tuple(part.copy() for part in self._batch)

    def wait(self):
        self._thread.join()
        return self.result


def test_a_slot_is_never_refilled_while_a_copy_may_read_it() -> None:
    source = batches_of(60, 5)
    station = TransferStation(source, lambda batch: SlowCopy(batch, 0.01), SlowCopy.wait)
    copies = list(station.batches(0))
    for copy, (images, labels) in zip(copies, source.batches(0), strict=True):
        np.testing.assert_array_equal(copy.wait()[0], images)
        np.testing.assert_array_equal(copy.wait()[1], labels)


def test_without_waiting_the_slow_copy_would_read_a_later_batch() -> None:
    """The test above can fail: here the promise to wait is broken."""
    source = batches_of(60, 5)
    station = TransferStation(source, lambda batch: SlowCopy(batch, 0.05), lambda handle: None)
    copies = list(station.batches(0))
    results = [copy.wait()[0] for copy in copies]
    wrong = [
        not np.array_equal(result, images)
        for result, (images, _) in zip(results, source.batches(0), strict=True)
    ]
    assert any(wrong)


def test_one_slot_fills_while_the_consumer_works(tmp_path) -> None:
    station = TransferStation(batches_of(40, 5), lambda b: b[0].copy(), keep_trace=True)
    for _ in station.batches(0):
        time.sleep(0.02)
    uses = {e.batch: e for e in station.trace if e.kind == "use"}
    fills = {e.batch: e for e in station.trace if e.kind == "fill"}
    assert set(fills) == set(range(8)) and set(uses) == set(range(8))
    assert [fills[k].slot for k in range(8)] == list("ABABABAB")
    overlapping = [
        k
        for k in range(7)
        if fills[k + 1].begin < uses[k].end and fills[k + 1].slot != uses[k].slot
    ]
    assert len(overlapping) >= 6
    station.write_trace(tmp_path / "trace.json")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == 32


def test_errors_come_through_and_no_thread_stays() -> None:
    source = batches_of()

    def broken(ids, epoch, images, labels):
        raise FormatError("sample 3 is damaged")

    source.fill = broken
    station = TransferStation(source, lambda batch: None)
    with pytest.raises(FormatError, match="sample 3 is damaged"):
        list(station.batches(0))
    source = batches_of()
    for _ in TransferStation(source, lambda batch: None).batches(0):
        break
    source.close()
    time.sleep(0.3)
    assert not [t for t in threading.enumerate() if t.name.startswith("renaissance")]


def test_slots_begin_on_a_page() -> None:
    station = TransferStation(batches_of(), lambda batch: None)
    for slot in station._slots:
        assert slot.images.ctypes.data % 4096 == 0 and slot.labels.ctypes.data % 4096 == 0


def test_jax_copies_never_share_a_slot() -> None:
    jax = pytest.importorskip("jax")
    from renaissance.data.device_pipeline import copy_to_device

    source = batches_of(60, 5, dtype=np.float16)
    station = TransferStation(source, copy_to_device, jax.block_until_ready)
    travelled = list(station.batches(2))
    for (images, labels), (expected, expected_labels) in zip(
        travelled, source.batches(2), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(images), expected)
        np.testing.assert_array_equal(np.asarray(labels), expected_labels)
