"""The loader: a data set as an iterator of ready batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np

from renaissance.core.errors import check_int, fail
from renaissance.core.philox import permutation
from renaissance.data.buffers import paged
from renaissance.data.dataset import ArrayDataset
from renaissance.data.encoded import EncodedDataset
from renaissance.data.engine import make_engine
from renaissance.data.normalization import Normalization, check_float, normalization_of
from renaissance.data.prefetch import Prefetcher
from renaissance.data.preparation import Dataset, Preparation
from renaissance.data.transforms import Transform, check_chain

MOST_SEED = 2**64 - 1
MOST_EPOCH = 2**32 - 1

Batch = tuple[np.ndarray, np.ndarray]


class Loader:
    """Batches of one data set, epoch after epoch; see :func:`loader`.

    Attributes:
        dataset: Where the samples come from.
        batch_size: Samples per batch.
        epoch: What the next loop will run.
        preparation: How samples become batches.
        image_shape: Height, width and channels of the images in a batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        preparation: Preparation,
        *,
        batch_size: int,
        shuffle: bool,
        epoch: int,
        drop_last: bool,
        prefetch: int,
    ) -> None:
        self.dataset = dataset
        self.preparation = preparation
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.epoch = epoch
        self.drop_last = drop_last
        self.prefetch = prefetch
        self.engine = make_engine(dataset, preparation)
        self.image_shape = self.engine.after
        self._running: weakref.WeakSet[Prefetcher[Batch]] = weakref.WeakSet()

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Applied in order, before the normalisation."""
        return self.preparation.transforms

    @property
    def normalization(self) -> Normalization:
        """What ends the chain."""
        return self.preparation.normalization

    @property
    def seed(self) -> int:
        """Of every random decision."""
        return self.preparation.seed

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> np.ndarray:
        """Sample ids in the order of ``epoch``, int64 ``[n]``; a function of seed and epoch."""
        if self.shuffle:
            return permutation(len(self.dataset), self.preparation.seed, epoch)
        return np.arange(len(self.dataset), dtype=np.int64)

    def id_batches(self, epoch: int) -> list[np.ndarray]:
        """The sample ids of every batch of an epoch."""
        return self.cut(self.order(check_int("epoch", epoch, 0, MOST_EPOCH)))

    def cut(self, order: np.ndarray) -> list[np.ndarray]:
        """An order of the samples as batches."""
        size = self.batch_size
        return [order[k * size : (k + 1) * size] for k in range(len(self))]

    def fill(self, ids: np.ndarray, epoch: int, images: np.ndarray, labels: np.ndarray) -> None:
        """Prepare the samples ``ids`` into ``images`` and ``labels``, in place."""
        self.engine.fill(ids, epoch, images, labels)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch: a pure function of the loader's arguments and ``epoch``.

        Every batch is a fresh pair of arrays, safe to keep.
        """
        produced = self._produce(epoch)
        if not self.prefetch:
            return produced
        running = Prefetcher(produced, self.prefetch)
        self._running.add(running)
        return running

    def _produce(self, epoch: int) -> Iterator[Batch]:
        ids = self.id_batches(epoch)
        for number, batch in enumerate(ids):
            if number == 0:
                self.engine.announce(batch)
            if number + 1 < len(ids):
                self.engine.announce(ids[number + 1])
            images = paged((len(batch), *self.image_shape), self.preparation.dtype)
            labels = np.empty(len(batch), np.int32)
            self.fill(batch, epoch, images, labels)
            yield images, labels

    def __iter__(self) -> Iterator[Batch]:
        """The batches of :attr:`epoch`, which then counts on: a next loop is the next epoch."""
        epoch = self.epoch
        self.epoch += 1
        return self.batches(epoch)

    @property
    def replaced(self) -> dict[int, str]:
        """Damaged samples met so far that were replaced, with what was wrong; see ``tolerant``."""
        return dict(getattr(self.engine, "replaced", {}))

    def close(self) -> None:
        """End all threads, those of loops that were left early too."""
        for running in list(self._running):
            running.close()
        self.engine.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def loader(
    dataset: Dataset,
    *,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
    transforms: Sequence[Transform] | Transform = (),
    normalization: Normalization | str | None = None,
    dtype: np.dtype | type | str = np.float32,
    channels: int | None = None,
    workers: int | None = None,
    load_workers: int = 1,
    prefetch: int = 1,
    cpu_binding: bool = False,
    tolerant: bool = False,
    backend: str = "auto",
) -> Loader:
    """Iterate over a data set in ready batches, for any training loop::

        batches = rn.data.loader(train, batch_size=200, shuffle=True, seed=1, normalization="MNIST")
        for epoch in range(10):
            for images, labels in batches:  # the next epoch's order each time
                ...

    Every byte is a pure function of the arguments, the epoch and the sample's id: the number of
    workers changes nothing but the speed.

    Args:
        dataset: Pictures in memory, or encoded ones.
        batch_size: Samples per batch, at most the data set's size.
        shuffle: Visit the samples in a Philox permutation of (seed, epoch), else in order.
        seed: 64-bit seed of every random decision.
        epoch: The epoch the first loop runs; each further loop runs the next.
        drop_last: Leave out a last batch that is not full; else it is yielded, smaller.
        transforms: Applied in order, before the normalisation.
        normalization: A record, a preset's name ("MNIST", "CIFAR", "IMAGENET", "MLPERF",
            "NO_NORM"), or None for pixels in [0, 1].
        dtype: float32 or float16 of the images.
        channels: Channels of the images, at least the data set's; added ones are 0.
        workers: Threads that prepare samples; None: one per processor.
        load_workers: Threads that read encoded samples ahead; 0: they are read when needed.
        prefetch: Batches prepared ahead on a thread of their own; 0: none, when asked for.
        cpu_binding: Bind the workers to processors in turn.
        tolerant: Replace a damaged sample by the next good one of the data set, and count it in
            ``replaced``, instead of raising.
        backend: "auto", or one engine by name: "native", "numpy", "picture".

    Returns:
        An iterable of ``(images [n, h, w, c] of dtype, labels int32 [n])``; its ``batches(epoch)``
        gives one epoch by number, ``len`` the batches per epoch.

    Raises:
        TypeError, ValueError: An argument is out of its range; also a batch larger than the data
            set.
        ShapeError: A transform does not fit the pictures.
        NativeError, ImportError: A backend or package that is needed is missing.
    """
    if not isinstance(dataset, (ArrayDataset, EncodedDataset)):
        fail(TypeError, "dataset", type(dataset).__name__, "an ArrayDataset or EncodedDataset")
    size = check_int("batch_size", batch_size, 1)
    if size > len(dataset):
        fail(ValueError, "batch_size", size, f"at most {len(dataset)}, all of {dataset.name}")
    preparation = Preparation(
        transforms=check_chain(transforms),
        normalization=normalization_of(normalization),
        dtype=check_float(dtype),
        out_channels=channels,
        seed=check_int("seed", seed, 0, MOST_SEED),
        workers=None if workers is None else check_int("workers", workers, 1),
        load_workers=check_int("load_workers", load_workers, 0),
        cpu_binding=bool(cpu_binding),
        tolerant=bool(tolerant),
        backend=backend,
    )
    return Loader(
        dataset,
        preparation,
        batch_size=size,
        shuffle=bool(shuffle),
        epoch=check_int("epoch", epoch, 0, MOST_EPOCH),
        drop_last=bool(drop_last),
        prefetch=check_int("prefetch", prefetch, 0),
    )
