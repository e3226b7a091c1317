"""The engine for any pictures and any chain: Python threads over libraries that free the GIL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from renaissance.core.errors import FormatError, check_int
from renaissance.data import codec, native
from renaissance.data.chain import ImageShape
from renaissance.data.dataset import ArrayDataset
from renaissance.data.draws import Draw
from renaissance.data.encoded import EncodedDataset
from renaissance.data.pictures import PictureChain, output_shape
from renaissance.data.preparation import Dataset, Preparation, widened
from renaissance.data.workers import ThreadWorkers

log = logging.getLogger("renaissance.data")

MOST_REPLACEMENTS = 100


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
