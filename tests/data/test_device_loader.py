"""The device's loader: the host's batches, singly or in stacks."""

from __future__ import annotations

import numpy as np
import pytest
from data_samples import noise_dataset

from renaissance.data import Pad, RandomCrop, RandomGrayscale, loader
from renaissance.data.device_loader import DeviceLoader

BATCH_BYTES = 16 * 8 * 8 * 3 * 4


def make(
    count: int = 100, stacks_of: int = 1000, *, shuffle: bool = True, **options
) -> DeviceLoader:
    host = loader(noise_dataset(count, 8, 8, 3), batch_size=16, shuffle=shuffle, seed=3, **options)
    return DeviceLoader(host, stack_bytes=stacks_of * BATCH_BYTES)


@pytest.mark.parametrize(
    ("count", "stacks_of", "sizes"),
    [
        (96, 1000, (6,)),  # all at once
        (100, 1000, (6, 1)),  # the last batch is not full
        (96, 5, (3, 3)),  # of one size
        (160, 4, (2, 2, 2, 2, 2)),  # rather more of one size
        (112, 4, (4, 3)),  # a prime number of batches
        (100, 1, (1,) * 7),  # no room for two
        (100, 0, (1,) * 7),
        (16, 9, (1,)),
    ],
)
def test_stacks_fit_and_are_of_one_size_where_that_is_cheap(count, stacks_of, sizes) -> None:
    assert make(count, stacks_of).stack_sizes == sizes


def test_a_dropped_last_batch_is_in_no_stack() -> None:
    assert make(100, 1000, drop_last=True).stack_sizes == (6,)


def test_batches_and_stacks_are_the_hosts_bytes() -> None:
    device = make(100, 4, transforms=[Pad(1), RandomCrop(8)], normalization="CIFAR")
    assert device.stack_sizes == (3, 3, 1)
    assert len(device) == len(device.host) == 7
    assert device.image_shape == device.host.image_shape
    for epoch in (4, 5, 2):  # the next one's order is ready, then another is asked for
        expected = list(device.host.batches(epoch))
        single = list(device.batches(epoch))
        stacked = []
        for images, labels in device.stacks(epoch):
            lead = images.ndim == 5
            stacked += list(zip(images, labels, strict=True)) if lead else [(images, labels)]
        for batches in (single, stacked):
            for (images, labels), (x, y) in zip(batches, expected, strict=True):
                assert np.asarray(images).tobytes() == x.tobytes()
                np.testing.assert_array_equal(np.asarray(labels), y)


def test_a_set_that_never_changes_is_prepared_once() -> None:
    fixed = make(40, shuffle=False)
    first = list(fixed.batches(0))
    assert all(a is b for a, b in zip(first, fixed.batches(7), strict=True))
    assert [len(labels) for _, labels in first] == [16, 16, 8]
    for changing in (make(40), make(40, shuffle=False, transforms=[Pad(1), RandomCrop(8)])):
        before = np.asarray(next(changing.batches(0))[0])
        assert np.any(before != np.asarray(next(changing.batches(1))[0]))
    large = make(40, 1, shuffle=False)  # does not fit: prepared again
    assert next(large.batches(0))[0] is not next(large.batches(0))[0]


def test_an_abandoned_epoch_is_not_taken_for_the_whole_set() -> None:
    fixed = make(40, shuffle=False)
    next(fixed.batches(0))
    assert len(list(fixed.batches(0))) == 3


def test_what_the_device_cannot_do_is_refused() -> None:
    with pytest.raises(TypeError, match=r"RandomGrayscale.* is not geometric"):
        make(transforms=RandomGrayscale())
    with pytest.raises(ValueError, match="stack_bytes is -"):
        make(stacks_of=-1)
