"""Engines: they prepare one batch of samples, each in its own way, all with the same bytes.

=========  ==================================  ====================================
engine     samples                             by
=========  ==================================  ====================================
native     pixels in memory, geometric chains  C++ workers
numpy      the same                            whole arrays, where there is no library
picture    any pictures, any chain             Python threads over GIL-free libraries
=========  ==================================  ====================================
"""

from __future__ import annotations

import numpy as np

from renaissance.core.errors import fail
from renaissance.data import array_ops, native
from renaissance.data.chain import is_small, lower_chain
from renaissance.data.dataset import ArrayDataset
from renaissance.data.encoded import EncodedDataset
from renaissance.data.picture_engine import PictureEngine
from renaissance.data.preparation import Dataset, Engine, Preparation, widened
from renaissance.data.transforms import check_chain


def make_engine(dataset: Dataset, preparation: Preparation) -> Engine:
    """The engine for a data set.

    Raises:
        TypeError: Not a data set.
        ShapeError, ValueError: The chain does not fit the pictures.
        NativeError: The native backend is asked for and missing.
        ImportError: A package that decodes or transforms the pictures is missing.
    """
    transforms = check_chain(preparation.transforms)
    backend = preparation.backend
    if backend not in ("auto", "native", "numpy", "picture"):
        fail(ValueError, "backend", backend, "auto, native, numpy or picture")
    if isinstance(dataset, EncodedDataset):
        if backend in ("native", "numpy"):
            fail(ValueError, "backend", backend, f"auto or picture for {dataset.name}, not decoded")
        return PictureEngine(dataset, preparation)
    if not isinstance(dataset, ArrayDataset):
        fail(TypeError, "dataset", type(dataset).__name__, "an ArrayDataset or EncodedDataset")
    small = is_small(transforms, dataset.image_shape)
    if backend in ("native", "numpy") and not small:
        fail(ValueError, "transforms", transforms, f"geometric ones only for backend {backend!r}")
    if backend == "picture" or not small:
        return PictureEngine(dataset, preparation)
    if backend == "native" or (backend == "auto" and native.is_available()):
        return NativeEngine(dataset, preparation)
    return NumpyEngine(dataset, preparation)


class NativeEngine:
    """Pixels in memory, prepared by C++ workers."""

    def __init__(self, dataset: ArrayDataset, preparation: Preparation) -> None:
        chain = lower_chain(preparation.transforms, dataset.image_shape)
        self.after = widened(chain.after, preparation.out_channels)
        self._preparation = preparation
        self._plan = native.Plan(chain)
        self._normalizer = native.Normalizer(
            preparation.normalization, chain.after[2], preparation.dtype, self.after[2]
        )
        self._images = np.ascontiguousarray(dataset.images)
        self._labels = np.ascontiguousarray(dataset.labels)
        self._pool = native.Pool(preparation.worker_count(), preparation.bind_to())

    def announce(self, ids: np.ndarray) -> None:
        pass

    def fill(self, ids: np.ndarray, epoch: int, out: np.ndarray, out_labels: np.ndarray) -> None:
        self._pool.fill(
            self._plan,
            self._normalizer,
            self._images,
            self._labels,
            np.ascontiguousarray(ids, np.int64),
            seed=self._preparation.seed,
            epoch=epoch,
            out=out,
            out_labels=out_labels,
            delay_microseconds=self._preparation.delay_microseconds,
        )

    def close(self) -> None:
        self._pool.close()


class NumpyEngine:
    """The same by whole arrays, a few hundred samples at a time."""

    CHUNK = 256

    def __init__(self, dataset: ArrayDataset, preparation: Preparation) -> None:
        self._chain = lower_chain(preparation.transforms, dataset.image_shape)
        self.after = widened(self._chain.after, preparation.out_channels)
        self._dataset = dataset
        self._seed = preparation.seed
        channels = self._chain.after[2]
        self._table = preparation.normalization.table(channels, preparation.dtype)

    def announce(self, ids: np.ndarray) -> None:
        pass

    def fill(self, ids: np.ndarray, epoch: int, out: np.ndarray, out_labels: np.ndarray) -> None:
        low, high = np.uint32(self._seed & 0xFFFFFFFF), np.uint32(self._seed >> 32)
        for first in range(0, len(ids), self.CHUNK):
            part = ids[first : first + self.CHUNK]
            samples = part.astype(np.uint32)
            draw = array_ops.draws(np, self._chain, (low, high), samples, np.uint32(epoch))
            images, finish = array_ops.run_chain(np, self._chain, self._dataset.images[part], draw)
            out[first : first + len(part)] = array_ops.normalize(
                np, images, finish, self._table, self.after[2]
            )
        out_labels[:] = self._dataset.labels[ids]

    def close(self) -> None:
        pass
