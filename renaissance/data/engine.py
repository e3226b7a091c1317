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

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from renaissance.core.errors import FormatError, check_int, fail
from renaissance.data import array_ops, codec, native
from renaissance.data.chain import ImageShape, is_small, lower_chain
from renaissance.data.dataset import ArrayDataset
from renaissance.data.draws import Draw
from renaissance.data.encoded import EncodedDataset
from renaissance.data.native import processors
from renaissance.data.normalization import Normalization
from renaissance.data.pictures import PictureChain, output_shape
from renaissance.data.transforms import Transform, check_chain
from renaissance.data.workers import ThreadWorkers

log = logging.getLogger("renaissance.data")

MOST_REPLACEMENTS = 100
Dataset = ArrayDataset | EncodedDataset


@dataclass(frozen=True, slots=True)
class Preparation:
    """How samples become batches.

    Attributes:
        transforms: Applied in order.
        normalization: Ends the chain.
        dtype: float32 or float16 of the images.
        out_channels: Channels of the images; None: the data set's. Added ones are 0.
        seed: 64-bit seed of every random decision.
        workers: Threads that prepare samples; None: one per processor.
        load_workers: Threads that read ahead, for data sets on disk.
        cpu_binding: Bind the workers to processors in turn.
        tolerant: Replace a damaged sample by the next good one instead of raising.
        backend: "auto", "native", "numpy" or "picture".
        delay_microseconds: For tests: the most that workers pause before a sample.
    """

    transforms: tuple[Transform, ...] = ()
    normalization: Normalization = field(default_factory=Normalization)
    dtype: np.dtype = np.dtype(np.float32)
    out_channels: int | None = None
    seed: int = 0
    workers: int | None = None
    load_workers: int = 1
    cpu_binding: bool = False
    tolerant: bool = False
    backend: str = "auto"
    delay_microseconds: int = 0

    def worker_count(self) -> int:
        """The number of workers."""
        return len(processors()) if self.workers is None else self.workers

    def bind_to(self) -> tuple[int, ...]:
        """The processors to bind to; empty: none."""
        return processors() if self.cpu_binding else ()


class Engine(Protocol):
    """What a loader needs."""

    after: ImageShape

    def announce(self, ids: np.ndarray) -> None:
        """These samples come next: a data set on disk begins to read them."""

    def fill(self, ids: np.ndarray, epoch: int, out: np.ndarray, out_labels: np.ndarray) -> None:
        """Prepare a batch into ``out`` [count, h, w, c] and ``out_labels`` [count]."""

    def close(self) -> None:
        """End all threads."""


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


class PictureEngine:
    """Any pictures and any chain, one sample at a time on Python threads."""

    def __init__(self, dataset: Dataset, preparation: Preparation) -> None:
        if isinstance(dataset, ArrayDataset):
            shape: ImageShape | None = dataset.image_shape
            channels = dataset.image_shape[2]
        else:
            shape, channels = None, dataset.channels
            codec.required("simplejpeg", f"decoding {dataset.name}")
        self._chain = PictureChain(preparation.transforms, channels)
        body = output_shape(self._chain.transforms, shape, channels)
        self.after = widened(body, preparation.out_channels)
        self._dataset = dataset
        self._preparation = preparation
        self._finish = Finisher(preparation, channels, self.after[2])
        self._workers = ThreadWorkers(preparation.worker_count(), preparation.bind_to())
        self._reader = ReadAhead(dataset, preparation.load_workers)
        self.replaced: dict[int, str] = {}

    def announce(self, ids: np.ndarray) -> None:
        self._reader.announce(ids)

    def fill(self, ids: np.ndarray, epoch: int, out: np.ndarray, out_labels: np.ndarray) -> None:
        stream = out.nbytes > native.CACHE_BYTES

        def item(position: int) -> None:
            place = out[position]
            out_labels[position] = self._prepare(int(ids[position]), epoch, place, stream)

        self._workers.run(len(ids), item)
        self._reader.forget(ids)

    def _prepare(self, sample: int, epoch: int, place: np.ndarray, stream: bool) -> int:
        """One sample into its place; returns its label.

        A damaged sample is replaced, if that is allowed, by the next one in the data set (cyclic)
        that is not, with that one's label and random numbers: the same whoever meets it when.
        """
        for step in range(MOST_REPLACEMENTS):
            current = (sample + step) % len(self._dataset)
            try:
                self._prepare_exactly(current, epoch, place, stream)
                return int(self._dataset.labels[current])
            except (FormatError, OSError) as error:
                where = f"sample {current} of {self._dataset.name} ({self._where(current)})"
                if not self._preparation.tolerant:
                    raise FormatError(f"{where}: {error}") from error
                if current not in self.replaced:
                    self.replaced[current] = str(error)
                    log.warning("%s is replaced by the next good one: %s", where, error)
        raise FormatError(
            f"{self._dataset.name}: {MOST_REPLACEMENTS} damaged samples in a row from {sample} on"
        )

    def _prepare_exactly(self, sample: int, epoch: int, place: np.ndarray, stream: bool) -> None:
        draw = Draw(self._preparation.seed, epoch, sample)
        if isinstance(self._dataset, ArrayDataset):
            image, flip, box = self._chain.run(self._dataset.images[sample], draw)
        else:
            image, flip, box = self._chain.run_encoded(self._reader.read(sample), draw)
        if image.shape[:2] != self.after[:2]:
            raise FormatError(
                f"is {image.shape[0]}x{image.shape[1]} after the transforms, expected "
                f"{self.after[0]}x{self.after[1]}"
            )
        self._finish.run(image, flip, box, place, stream)

    def _where(self, sample: int) -> str:
        if isinstance(self._dataset, ArrayDataset):
            return "in memory"
        return self._dataset.where(sample)

    def close(self) -> None:
        self._workers.close()
        self._reader.close()


class Finisher:
    """The fused normalisation of one picture, native or by numpy."""

    def __init__(self, preparation: Preparation, channels: int, out_channels: int) -> None:
        self._out_channels = out_channels
        self._table = preparation.normalization.table(channels, preparation.dtype)
        self._native = None
        if native.is_available() and preparation.backend != "numpy":
            self._native = native.Normalizer(
                preparation.normalization, channels, preparation.dtype, out_channels
            )

    def run(
        self,
        image: np.ndarray,
        flip: bool,
        box: tuple[int, int, int, int],
        place: np.ndarray,
        stream: bool,
    ) -> None:
        """Write the normalised picture to its place."""
        if self._native is not None:
            self._native.run(np.ascontiguousarray(image), place, flip, box, stream)
            return
        channels = self._table.shape[0]
        if flip:
            image = image[:, ::-1]
        for k in range(channels):
            place[..., k] = self._table[k][image[..., k]]
        place[..., channels:] = 0
        top, left, height, width = box
        place[top : top + height, left : left + width] = 0


class ReadAhead:
    """Reads the encoded bytes of the announced samples while others are prepared."""

    def __init__(self, dataset: Dataset, workers: int) -> None:
        self._dataset = dataset
        self._pending: dict[int, Future[bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None
        if isinstance(dataset, EncodedDataset) and check_int("load_workers", workers, 0) > 0:
            self._pool = ThreadPoolExecutor(workers, "renaissance-load")

    def announce(self, ids: Sequence[int] | np.ndarray) -> None:
        """Begin to read these samples."""
        if self._pool is None:
            return
        assert isinstance(self._dataset, EncodedDataset)
        for sample in map(int, ids):
            if sample not in self._pending:
                self._pending[sample] = self._pool.submit(self._dataset.read, sample)

    def read(self, sample: int) -> bytes:
        """A sample's bytes, read ahead or now."""
        assert isinstance(self._dataset, EncodedDataset)
        pending = self._pending.get(sample)
        return self._dataset.read(sample) if pending is None else pending.result()

    def forget(self, ids: Sequence[int] | np.ndarray) -> None:
        """Give back the bytes of samples that are done."""
        for sample in map(int, ids):
            self._pending.pop(sample, None)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()


def widened(shape: ImageShape, out_channels: int | None) -> ImageShape:
    """The shape with the channels asked for."""
    h, w, c = shape
    if out_channels is None:
        return shape
    return h, w, check_int("channels", out_channels, c)
