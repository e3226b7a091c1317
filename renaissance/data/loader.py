"""The plain loader: a data set as an iterator of ready batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from renaissance.core.errors import check_int, fail
from renaissance.core.philox import permutation
from renaissance.data.dataset import ArrayDataset
from renaissance.data.normalization import Normalization, check_float, normalization_of

MOST_SEED = 2**64 - 1
MOST_EPOCH = 2**32 - 1

Batch = tuple[np.ndarray, np.ndarray]


class Loader:
    """Batches of one data set, epoch after epoch; see :func:`loader`."""

    def __init__(
        self,
        dataset: ArrayDataset,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        epoch: int,
        drop_last: bool,
        normalization: Normalization,
        dtype: np.dtype,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = epoch
        self.drop_last = drop_last
        self.normalization = normalization
        self.dtype = dtype
        self._table = normalization.table(dataset.image_shape[2], dtype)

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the pictures in a batch."""
        return self.dataset.image_shape

    def order(self, epoch: int) -> np.ndarray:
        """Sample ids in the order of ``epoch``, int64 ``[n]``; a function of seed and epoch."""
        if self.shuffle:
            return permutation(len(self.dataset), self.seed, epoch)
        return np.arange(len(self.dataset))

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch: a pure function of the loader's arguments and ``epoch``."""
        order = self.order(check_int("epoch", epoch, 0, MOST_EPOCH))
        channels = np.arange(self.image_shape[2])
        for first in range(0, len(self) * self.batch_size, self.batch_size):
            ids = order[first : first + self.batch_size]
            yield self._table[channels, self.dataset.images[ids]], self.dataset.labels[ids]

    def __iter__(self) -> Iterator[Batch]:
        """The batches of :attr:`epoch`, which then counts on: a next loop is the next epoch."""
        epoch = self.epoch
        self.epoch += 1
        return self.batches(epoch)


def loader(
    dataset: ArrayDataset,
    *,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
    normalization: Normalization | str | None = None,
    dtype: np.dtype | type | str = np.float32,
) -> Loader:
    """Iterate over a data set in ready batches, for any training loop::

        batches = rn.data.loader(train, batch_size=200, shuffle=True, seed=1, normalization="MNIST")
        for epoch in range(10):
            for images, labels in batches:  # the next epoch's order each time
                ...

    Every byte is a pure function of the arguments, the epoch and the sample's id.

    Args:
        dataset: Pictures and labels in memory.
        batch_size: Samples per batch, at most the data set's size.
        shuffle: Visit the samples in a Philox permutation of (seed, epoch), else in order.
        seed: 64-bit seed of every random decision.
        epoch: The epoch the first loop runs; each further loop runs the next.
        drop_last: Leave out a last batch that is not full; else it is yielded, smaller.
        normalization: A record, a preset's name ("MNIST", "CIFAR", "IMAGENET", "MLPERF",
            "NO_NORM"), or None for pixels in [0, 1].
        dtype: float32 or float16 of the images.

    Returns:
        An iterable of ``(images [n, h, w, c] of dtype, labels int32 [n])``; its ``batches(epoch)``
        gives one epoch by number, ``len`` the batches per epoch.

    Raises:
        TypeError, ValueError: An argument is out of its range; also a batch larger than the data
            set.
    """
    if not isinstance(dataset, ArrayDataset):
        fail(TypeError, "dataset", type(dataset).__name__, "an ArrayDataset")
    size = check_int("batch_size", batch_size, 1)
    if size > len(dataset):
        fail(ValueError, "batch_size", size, f"at most {len(dataset)}, all of {dataset.name}")
    return Loader(
        dataset,
        batch_size=size,
        shuffle=bool(shuffle),
        seed=check_int("seed", seed, 0, MOST_SEED),
        epoch=check_int("epoch", epoch, 0, MOST_EPOCH),
        drop_last=bool(drop_last),
        normalization=normalization_of(normalization),
        dtype=check_float(dtype),
    )
