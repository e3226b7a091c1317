"""Small data: every training on it takes a fraction of a second."""

from __future__ import annotations

import numpy as np

from renaissance.data import ArrayDataset, Loader, loader

CLASSES = 3


def pictures(count: int, *, side: int = 6, channels: int = 1, seed: int = 0) -> ArrayDataset:
    """Noise with one bright row of blocks per class: easy, but not at once."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count)
    images = generator.integers(0, 120, (count, side, side, channels))
    for index, label in enumerate(labels):
        images[index, 2 * label : 2 * label + 2] += 60
    return ArrayDataset(images.astype(np.uint8), labels, CLASSES, "blocks")


def batches(count: int = 48, batch: int = 16, *, shuffle: bool = True, **options) -> Loader:
    """A loader over :func:`pictures`: 48 samples are three batches of 16, 50 leave a last of 2."""
    side, channels, seed = (
        options.pop("side", 6),
        options.pop("channels", 1),
        options.pop("data", 0),
    )
    dataset = pictures(count, side=side, channels=channels, seed=seed)
    return loader(dataset, batch_size=batch, shuffle=shuffle, seed=5, **options)
