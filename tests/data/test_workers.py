"""The sample stream: the same bytes whoever prepares it; errors and interrupts come through."""

from __future__ import annotations

import gc
import hashlib
import threading
import time
import traceback
from dataclasses import replace

import numpy as np
import pytest
from data_samples import encoded_noise, needs_native, noise_dataset, real_data

from renaissance.core.errors import FormatError, NativeError
from renaissance.data import (
    ColorJitter,
    FastRandomResizedCrop,
    GaussianNoise,
    Loader,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomScale,
    load_mnist,
    loader,
)
from renaissance.data.preparation import Dataset
from renaissance.data.workers import ThreadWorkers

FIVE = [Pad(2), RandomCrop(28), RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5)]
WORKERS = [1, 2, 3, 7, 16, 64, 200]


def stream_digest(dataset: Dataset, epochs: int, delay: int = 0, **how) -> str:
    """SHA-256 of every byte of several epochs."""
    digest = hashlib.sha256()
    settings = {"batch_size": 50, "shuffle": True, "seed": 123, **how}
    batches = loader(dataset, **settings)
    if delay:
        slow = replace(batches.preparation, delay_microseconds=delay)
        batches.close()
        batches = Loader(
            dataset, slow, batch_size=50, shuffle=True, epoch=0, drop_last=False, prefetch=1
        )
    with batches:
        for _ in range(epochs):
            for images, labels in batches:
                digest.update(images.tobytes())
                digest.update(labels.tobytes())
    return digest.hexdigest()


@needs_native
def test_the_native_stream_is_the_same_for_any_number_of_workers() -> None:
    data = noise_dataset(230, 28, 28, 1)
    how = {"transforms": FIVE, "normalization": "MNIST", "dtype": np.float16}
    one = stream_digest(data, 3, backend="numpy", **how)
    for workers in WORKERS:
        for _ in range(2):
            assert stream_digest(data, 3, workers=workers, backend="native", **how) == one
        assert stream_digest(data, 3, workers=workers, delay=400, backend="native", **how) == one
    assert stream_digest(data, 3, workers=3, cpu_binding=True, **how) == one
    assert stream_digest(data, 3, workers=2, prefetch=0, **how) == one
    assert stream_digest(data, 3, seed=124, **how) != one


def test_the_numpy_stream_has_a_known_digest() -> None:
    """A change of any transform's definition or of the random numbers shows here."""
    images = np.arange(60 * 28 * 28, dtype=np.uint32).reshape(60, 28, 28, 1)
    data = noise_dataset(60, 28, 28, 1)
    object.__setattr__(data, "images", ((images * 2654435761) >> 24).astype(np.uint8))
    object.__setattr__(data, "labels", np.arange(60, dtype=np.int32) % 10)
    transforms = [*FIVE, RandomHorizontalFlip()]
    for backend in ("numpy", "auto"):
        digest = stream_digest(data, 2, transforms=transforms, normalization="MNIST",
                               backend=backend)  # fmt: skip
        assert digest == "d5e868ab94c1ddd9614b80eab9debbb82dc359f0ee2f1d5e8a33cfcbcbc7ca59"


def test_the_picture_stream_is_the_same_for_any_number_of_workers(monkeypatch) -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    data = encoded_noise(60)
    how = {"transforms": [FastRandomResizedCrop(16), RandomHorizontalFlip()], "dtype": np.float16}
    one = stream_digest(data, 2, workers=1, load_workers=0, **how)
    assert stream_digest(data, 2, workers=1, load_workers=3, **how) == one
    plain = data.read

    def delayed(index: int) -> bytes:
        time.sleep(0.0005 * (hash((index, threading.get_ident())) % 4))
        return plain(index)

    monkeypatch.setattr(data, "read", delayed)
    for workers in WORKERS:
        assert stream_digest(data, 2, workers=workers, **how) == one


def test_pictures_and_arrays_take_the_same_windows() -> None:
    """Where no resampling is involved the per-picture path gives the batch path's bits."""
    data = noise_dataset(40, 12, 11, 3)
    transforms = [
        Pad(3, "reflect"),
        RandomCrop((10, 9)),
        RandomErasing(0.6),
        RandomHorizontalFlip(),
    ]
    how = {"transforms": transforms, "normalization": "CIFAR", "channels": 4, "dtype": np.float16}
    one = stream_digest(data, 2, backend="picture", batch_size=20, **how)
    assert stream_digest(data, 2, backend="numpy", batch_size=20, **how) == one
    assert stream_digest(data, 2, backend="auto", batch_size=20, **how) == one


@needs_native
def test_real_mnist_streams_alike() -> None:
    data = load_mnist(real_data("mnist"), train=False).subset(slice(0, 1000))
    how = {"transforms": FIVE, "normalization": "MNIST", "batch_size": 200}
    assert stream_digest(data, 2, workers=5, **how) == stream_digest(data, 2, workers=1, **how)


# -- errors -----------------------------------------------------------------------------------


def names() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("renaissance")]


def test_a_damaged_file_is_named_with_its_index() -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    data = encoded_noise(20, damaged=(7,))
    begin = time.monotonic()
    with pytest.raises(FormatError, match=r"sample 7 of noise \(picture-7\): .*JPEG") as caught:
        with loader(data, batch_size=20, transforms=RandomResizedCrop(8), workers=4) as batches:
            list(batches)
    assert time.monotonic() - begin < 5
    told = "".join(traceback.format_exception(caught.value))
    assert "in decode\n" in told and "in _prepare_exactly" in told
    assert not names()


def test_tolerance_replaces_by_the_next_good_sample_and_counts() -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    good, bad = encoded_noise(20), encoded_noise(20, damaged=(7, 8, 19))
    how = {"batch_size": 20, "transforms": RandomResizedCrop(8), "prefetch": 0}
    with loader(good, **how) as right, loader(bad, tolerant=True, workers=3, **how) as batches:
        (expected, labels), (images, replaced_labels) = next(iter(right)), next(iter(batches))
        assert sorted(batches.replaced) == [7, 8, 19]
        assert "JPEG" in batches.replaced[7]
    source = np.arange(20)
    source[[7, 8, 19]] = 9, 9, 0
    np.testing.assert_array_equal(images, expected[source])
    np.testing.assert_array_equal(replaced_labels, labels[source])


def test_tolerance_ends_where_nothing_is_good() -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    data = encoded_noise(5, damaged=range(5))
    with loader(data, batch_size=5, transforms=RandomResizedCrop(8), tolerant=True) as batches:
        with pytest.raises(FormatError, match="100 damaged samples in a row"):
            next(iter(batches))


def test_a_workers_exception_arrives_within_a_second_with_its_traceback() -> None:
    workers = ThreadWorkers(4)
    done = []

    def item(position: int) -> None:
        if position == 5:
            raise ZeroDivisionError("in position 5")
        time.sleep(0.002)
        done.append(position)

    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="in position 5") as caught:
        workers.run(10_000, item)
    assert time.monotonic() - begin < 1
    assert caught.traceback[-1].name == "item"
    assert len(done) < 5_000
    assert 12 == len([workers.run(3, done.append) for _ in range(12)])  # it still works
    workers.close()
    assert not names()


def test_an_interrupt_while_waiting_stops_the_workers() -> None:
    import _thread

    workers = ThreadWorkers(2)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        workers.run(100_000, lambda position: time.sleep(0.001))
    assert time.monotonic() - begin < 5
    timer.join()
    workers.close()
    assert not names()


def test_leaving_a_loop_early_leaves_no_thread() -> None:
    data = noise_dataset(100, 4, 4, 1)
    batches = loader(data, batch_size=10, prefetch=2)
    for _ in batches:
        break
    gc.collect()
    deadline = time.monotonic() + 2
    while names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not names()


@needs_native
def test_closing_waits_for_the_batch_in_progress() -> None:
    data = noise_dataset(400, 28, 28, 1)
    for _ in range(20):
        with loader(data, batch_size=100, transforms=FIVE, workers=3) as batches:
            for _ in batches:
                break  # the next batch is being prepared
        with pytest.raises(NativeError, match="closed"):
            list(batches)
    assert not names()


@needs_native
def test_memory_is_flat_over_a_hundred_epochs() -> None:
    data = noise_dataset(200, 28, 28, 1)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    with loader(data, batch_size=50, transforms=FIVE, workers=4, shuffle=True) as batches:
        for _ in range(10):
            list(batches)
        before = resident()
        for _ in range(100):
            for _ in batches:
                pass
        assert resident() - before < 8 << 20


def test_transforms_of_one_picture_are_a_function_of_the_sample_alone() -> None:
    pytest.importorskip("cv2")
    data = noise_dataset(12, 9, 9, 3)
    transforms = [ColorJitter(0.4, 0.4, 0.4, 0.1), GaussianNoise(0.0, 0.1), RandomCrop(7)]
    how = {"batch_size": 12, "transforms": transforms, "seed": 5}
    whole, _ = next(iter(loader(data, **how)))
    shuffled = loader(data, shuffle=True, **how)
    images, _ = next(iter(shuffled))
    np.testing.assert_array_equal(images, whole[shuffled.order(0)])
