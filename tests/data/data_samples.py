"""What the data room's tests share: real data where it is at hand, small data sets made up."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from renaissance.data import ArrayDataset, native

SHARED = Path(
    os.environ.get("RENAISSANCE_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")
)

needs_native = pytest.mark.skipif(
    not native.is_available(), reason="the native library is not built"
)


def real_data(name: str) -> Path:
    """A folder of real data, or skip the test."""
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"no {name} in {SHARED}")
    return folder


def noise_dataset(n: int, h: int, w: int, c: int, classes: int = 10, seed: int = 0) -> ArrayDataset:
    """Random pictures: every mistake of a pixel shows."""
    draw = np.random.default_rng([seed, n, h, w, c])
    images = draw.integers(0, 256, (n, h, w, c), np.uint8)
    return ArrayDataset(images, draw.integers(0, classes, n), classes, "noise/train")
