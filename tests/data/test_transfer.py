"""The transfer station: every batch once, in order, from slots never refilled too early."""

from __future__ import annotations

import gc
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from data_samples import noise_dataset

from renaissance.core.errors import FormatError
from renaissance.data import RandomHorizontalFlip, TransferStation, buffers, loader


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


@pytest.mark.parametrize("pinned", [False, True])
def test_slots_begin_on_a_page(pinned: bool) -> None:
    station = TransferStation(batches_of(), lambda batch: None, pinned=pinned)
    for slot in station._slots:
        assert slot.images.ctypes.data % 4096 == 0 and slot.labels.ctypes.data % 4096 == 0


@pytest.mark.parametrize("pinned", [False, True])
def test_jax_copies_never_share_a_slot(pinned: bool) -> None:
    """On a GPU the copies read page-locked slots by themselves, and each slot is refilled as soon
    as its copy has been waited for."""
    jax = pytest.importorskip("jax")
    from renaissance.data.device_pipeline import copy_to_device

    data = noise_dataset(900, 40, 48, 3)
    source = loader(data, batch_size=120, shuffle=True, dtype=np.float16)
    station = TransferStation(source, copy_to_device, jax.block_until_ready, pinned=pinned)
    if jax.default_backend() == "gpu":
        assert station.pinned is pinned
    for epoch in range(2):
        travelled = list(station.batches(epoch))
        for (images, labels), (expected, expected_labels) in zip(
            travelled, source.batches(epoch), strict=True
        ):
            np.testing.assert_array_equal(np.asarray(images), expected)
            np.testing.assert_array_equal(np.asarray(labels), expected_labels)


class Driver:
    """Stands in for the CUDA driver: what is locked, and what it says."""

    def __init__(self, refuses: bytes = b"") -> None:
        self.refuses, self.locked = refuses, {}

    def rn_host_pin(self, address, size, message, capacity):
        assert address.value % 4096 == 0 and size.value % 4096 == 0
        message.value = self.refuses
        if not self.refuses:
            self.locked[address.value] = size.value
        return len(self.refuses)

    def rn_host_unpin(self, address, message, capacity):
        del self.locked[address.value]
        return 0


def test_slots_are_locked_as_long_as_they_live(monkeypatch) -> None:
    driver = Driver()
    monkeypatch.setattr(buffers.library, "status", lambda: SimpleNamespace(loaded=True))
    monkeypatch.setattr(buffers.library, "load", lambda: driver)
    source = batches_of(dtype=np.float16)
    station = TransferStation(source, lambda batch: tuple(p.copy() for p in batch), pinned=True)
    assert station.pinned and len(driver.locked) == 4
    for slot in station._slots:
        assert driver.locked[slot.images.ctypes.data] >= slot.images.nbytes
        assert driver.locked[slot.labels.ctypes.data] >= slot.labels.nbytes
    assert len(list(station.batches(0))) == 5
    kept = station._slots[0].images  # as a copy under way keeps it
    del station, slot
    gc.collect()
    assert list(driver.locked) == [kept.ctypes.data]
    del kept
    assert not driver.locked


def test_slots_that_cannot_be_locked_are_used_as_they_are(monkeypatch, caplog) -> None:
    monkeypatch.setattr(buffers.library, "status", lambda: SimpleNamespace(loaded=True))
    monkeypatch.setattr(buffers.library, "load", lambda: Driver(b"cuMemHostRegister failed: no"))
    with caplog.at_level("INFO", "renaissance"):
        station = TransferStation(batches_of(), lambda batch: batch[1].copy(), pinned=True)
    assert not station.pinned and "cuMemHostRegister failed: no" in caplog.text
    assert sum(len(labels) for labels in station.batches(0)) == 23


def test_a_loader_whose_batches_travel_ahead() -> None:
    pytest.importorskip("jax")
    from renaissance.data.transferred import TransferredLoader

    source = batches_of()
    sent = TransferredLoader(source)
    assert (len(sent), sent.batch_size, sent.image_shape) == (5, 5, source.image_shape)
    next(sent.batches(1))  # an epoch left early
    for epoch in (1, 2):
        for (images, labels), (expected, expected_labels) in zip(
            sent.batches(epoch), source.batches(epoch), strict=True
        ):
            assert np.asarray(images).tobytes() == expected.tobytes()
            np.testing.assert_array_equal(np.asarray(labels), expected_labels)
    sent.close()
