"""Chains of transforms, and what the host makes of them: the bytes that a batch must have."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.data import (
    ArrayDataset,
    CenterCrop,
    Loader,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomScale,
    loader,
)
from renaissance.data.chain import lower_chain
from renaissance.lowering.rewrites.augment import Augmentation, Drafts

MNIST = (Pad(2), RandomCrop(28), RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5))
CHAINS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "mnist": MNIST,
    "cifar": (Pad(4), RandomCrop(19), RandomHorizontalFlip(), RandomErasing(0.9)),
    "mirrors": (Pad(3, "reflect"), RandomCrop((17, 20)), Pad((1, 2, 3, 4), "symmetric")),
    "one warp": (RandomHorizontalFlip(0.7), RandomScale(0.5, 2.0, 200), Pad(2, "edge")),
    "all": (
        RandomHorizontalFlip(),
        Pad(3, "reflect"),
        RandomScale(0.7, 1.5),
        CenterCrop((20, 17)),
        RandomRotation((-180, 180), 7),
        Pad(1, fill=9),
        RandomRotation(30, 3),
        RandomErasing(0.7),
        RandomHorizontalFlip(),
    ),
}
CASES = [
    ("none", (5, 7, 1), 1, np.float16),
    ("none", (6, 5, 3), 3, np.float32),
    ("mnist", (28, 28, 1), 1, np.float16),
    ("mnist", (29, 31, 3), 8, np.float32),
    ("cifar", (17, 19, 3), 4, np.float16),
    ("mirrors", (19, 23, 4), 4, np.float16),
    ("one warp", (16, 21, 2), 3, np.float16),
    ("all", (23, 18, 3), 4, np.float16),
    ("all", (24, 17, 4), 8, np.float32),
]
"""Chain, shape of the pictures, channels of the batch, its type."""
EPOCHS = (0, 7)


def noise(n: int, shape: tuple[int, ...]) -> ArrayDataset:
    """Random pictures: every mistake of a pixel shows."""
    draw = np.random.default_rng([n, *shape])
    return ArrayDataset(draw.integers(0, 256, (n, *shape), np.uint8), draw.integers(0, 10, n), 10)


def host_loader(chain: str, shape: Any, channels: int, dtype: Any, **options: Any) -> Loader:
    """Two batches of 20 by the host, in numpy."""
    given = {"batch_size": 20, "shuffle": True, "seed": 2**40 + 9, "backend": "numpy"} | options
    return loader(
        noise(2 * given["batch_size"], shape),
        transforms=CHAINS[chain], normalization="MNIST", dtype=dtype, channels=channels, **given,
    )  # fmt: skip


def drafts_of(host: Loader, epoch: int) -> tuple[Augmentation, Drafts]:
    """The same epoch for the operation."""
    chain = lower_chain(host.transforms, host.dataset.image_shape)
    seed = np.array([host.seed & 0xFFFFFFFF, host.seed >> 32], np.uint32)
    ids = np.stack(host.id_batches(epoch)).astype(np.int32)
    values = host.normalization.table(chain.before[2], host.preparation.dtype)
    drafts = Drafts(
        host.dataset.images, host.dataset.labels, ids, seed, np.array(epoch, np.uint32),
        chain.tables(), values,
    )  # fmt: skip
    return Augmentation(chain.records(), host.image_shape), drafts


def expected(host: Loader, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The host's batches, stacked."""
    images, labels = zip(*host.batches(epoch), strict=True)
    return np.stack(images), np.stack(labels)
