"""Pictures made smaller for the first epochs."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.task.options import Progression
from renaissance.task.resolution import shrink, window_corners

IMAGES = np.arange(5 * 7 * 9 * 2, dtype=np.float32).reshape(5, 7, 9, 2)


def test_a_crop_is_a_window_of_its_own_picture():
    small = np.asarray(shrink(IMAGES, 4, Progression.CROP, seed=1, epoch=2, batch=3))
    corners = window_corners(IMAGES.shape, 4, seed=1, epoch=2, batch=3)
    assert small.shape == (5, 4, 4, 2)
    for image, (y, x), window in zip(IMAGES, corners, small, strict=True):
        assert np.array_equal(window, image[y : y + 4, x : x + 4])


def test_windows_reach_every_place_and_no_further():
    corners = window_corners((4000, 7, 9, 1), 4, seed=1, epoch=0, batch=0)
    assert set(corners[:, 0]) == set(range(4))
    assert set(corners[:, 1]) == set(range(6))


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}, {"batch": 1}])
def test_windows_depend_on_seed_epoch_and_batch_only(change):
    place = {"seed": 1, "epoch": 0, "batch": 0}
    first = window_corners((64, 32, 32, 3), 16, **place)
    assert np.array_equal(first, window_corners((64, 32, 32, 3), 16, **place))
    assert not np.array_equal(first, window_corners((64, 32, 32, 3), 16, **place | change))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_resizing_keeps_type_and_mean(dtype):
    images = np.linspace(0, 1, 2 * 8 * 8 * 3).reshape(2, 8, 8, 3).astype(dtype)
    small = np.asarray(shrink(images, 4, Progression.RESIZE, seed=0, epoch=0, batch=0))
    assert (small.shape, small.dtype) == ((2, 4, 4, 3), dtype)
    before, after = (a.astype(np.float64).mean(axis=(1, 2)) for a in (images, small))
    np.testing.assert_allclose(after, before, atol=2e-3)


def test_a_flat_picture_stays_flat():
    flat = np.full((1, 9, 9, 1), 0.3, np.float32)
    small = np.asarray(shrink(flat, 5, Progression.RESIZE, seed=0, epoch=0, batch=0))
    np.testing.assert_allclose(small, 0.3, rtol=1e-6)
