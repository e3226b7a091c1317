"""Data sets of encoded pictures: bytes by sample id, decoded when they are needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from renaissance.core.errors import FormatError, check_int, fail
from renaissance.data import codec
from renaissance.data.dataset import ArrayDataset, check_labels


class EncodedDataset:
    """Labelled JPEGs or PNGs, not yet decoded.

    Attributes:
        labels: int32 [n].
        num_classes: Number of classes.
        channels: Declared channels, 1 or 3: every picture is decoded to that many.
        name: What messages call it.
        class_names: Name of every class, where there is one.
    """

    def __init__(
        self,
        labels: Any,
        num_classes: int,
        *,
        channels: int = 3,
        name: str = "dataset",
        class_names: tuple[str, ...] = (),
    ) -> None:
        if check_int("channels", channels, 1, 3) == 2:
            fail(ValueError, "channels", channels, "1 (grey) or 3 (RGB)")
        self.labels = np.asarray(labels, np.int32)
        self.num_classes = check_int("num_classes", num_classes, 1)
        self.channels = channels
        self.name = name
        self.class_names = class_names
        check_labels(name, self.labels, len(self.labels), num_classes)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> bytes:
        """The encoded bytes of a sample; called from many threads at once."""
        raise NotImplementedError

    def where(self, index: int) -> str:
        """Where a sample lies, for messages."""
        return f"{self.name}[{index}]"

    def close(self) -> None:
        """Give back open files."""

    def in_memory(self) -> EncodedDataset:
        """The same with all bytes in memory."""
        return MemoryDataset(self)

    def decode(self, index: int) -> np.ndarray:
        """One picture, uint8 [h, w, channels].

        Raises:
            FormatError: It is damaged; the message names it.
        """
        try:
            return codec.decode(self.read(index), self.channels)
        except FormatError as error:
            raise FormatError(f"sample {index} ({self.where(index)}): {error}") from error

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {len(self)} samples, {self.num_classes} classes)"
        )


class MemoryDataset(EncodedDataset):
    """All encoded bytes of another data set, held in memory."""

    def __init__(self, source: EncodedDataset) -> None:
        super().__init__(
            source.labels,
            source.num_classes,
            channels=source.channels,
            name=source.name,
            class_names=source.class_names,
        )
        self._bytes = [source.read(i) for i in range(len(source))]
        self._where = [source.where(i) for i in range(len(source))]

    def read(self, index: int) -> bytes:
        return self._bytes[index]

    def where(self, index: int) -> str:
        return self._where[index]


def decode_all(dataset: EncodedDataset, workers: int = 2) -> ArrayDataset:
    """Decode pictures of one size into memory.

    Raises:
        FormatError: One is damaged, or of another size than the first; the message names it.
    """
    if not len(dataset):
        raise FormatError(f"{dataset.name}: no samples")
    shape = dataset.decode(0).shape
    images = np.empty((len(dataset), *shape), np.uint8)

    def one(index: int) -> None:
        image = dataset.decode(index)
        if image.shape != shape:
            raise FormatError(
                f"sample {index} ({dataset.where(index)}) is {image.shape[0]}x{image.shape[1]} but "
                f"the first is {shape[0]}x{shape[1]}; pictures of one size are expected here"
            )
        images[index] = image

    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(one, range(len(dataset)), chunksize=256):
            pass
    return ArrayDataset(images, dataset.labels, dataset.num_classes, dataset.name)
