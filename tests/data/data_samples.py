"""What the data room's tests share: real data where it is at hand, small data sets made up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from renaissance.data import ArrayDataset, EncodedDataset, Transform, array_ops, native
from renaissance.data.chain import Chain, lower_chain

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


def smooth_picture(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Waves of random direction: what survives a JPEG well."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    layers = []
    for _ in range(channels):
        a, b, phase = draw.uniform(-0.3, 0.3, 3)
        layers.append(127.5 + 110 * np.sin(a * x + b * y + 10 * phase))
    return np.rint(np.stack(layers, axis=2)).astype(np.uint8)


class EncodedPictures(EncodedDataset):
    """JPEGs of differing sizes, made up; the damaged ones are cut off."""

    def __init__(self, n: int, damaged: Iterable[int] = (), channels: int = 3) -> None:
        import simplejpeg

        super().__init__(np.arange(n) % 10, 10, channels=channels, name="noise")
        self.content = []
        for i in range(n):
            picture = smooth_picture(20 + i % 30, 24 + i % 17, 3, i)
            self.content.append(simplejpeg.encode_jpeg(picture, quality=90))
        for i in damaged:
            self.content[i] = self.content[i][: len(self.content[i]) // 2]

    def read(self, index: int) -> bytes:
        return self.content[index]

    def where(self, index: int) -> str:
        return f"picture-{index}"


encoded_noise = EncodedPictures


SEED, EPOCH = 0x1234_5678_9ABC_DEF0, 3


def transform_with_numpy(
    images: np.ndarray, transforms: list[Transform], seed: int = SEED, epoch: int = EPOCH
) -> tuple[np.ndarray, array_ops.Finish, Chain]:
    chain = lower_chain(transforms, images.shape[1:])
    ids = np.arange(len(images), dtype=np.uint32)
    halves = (np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32))
    draw = array_ops.draws(np, chain, halves, ids, np.uint32(epoch))
    result, finish = array_ops.run_chain(np, chain, images, draw)
    return result, finish, chain
