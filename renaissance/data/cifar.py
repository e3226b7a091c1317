"""CIFAR-10 and CIFAR-100 in their binary form.

Each record is the label (CIFAR-100: coarse, then fine label), then 1,024 red, green and blue bytes.
https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from renaissance.core.errors import FormatError, fail
from renaissance.data.dataset import ArrayDataset
from renaissance.data.files import open_maybe_gzip, read_upto, write_atomically

PIXELS = 3 * 32 * 32
MOST_BYTES = 1 << 32
FILES = {
    (10, True): tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    (10, False): ("test_batch.bin",),
    (100, True): ("train.bin",),
    (100, False): ("test.bin",),
}
# the coarse class of every fine class of CIFAR-100
COARSE = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


def check_classes(classes: int) -> int:
    """10 or 100."""
    if classes not in (10, 100):
        fail(ValueError, "CIFAR classes", classes, "10 or 100")
    return classes


def read_cifar(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    classes: int = 10,
    name: str = "",
) -> ArrayDataset:
    """Read one or several binary files as one data set.

    Args:
        paths: The files, in order; gzipped or not.
        classes: 10, or 100 (fine labels).
        name: What messages call it.

    Raises:
        FileNotFoundError: One is missing.
        FormatError: A size that is no whole number of records, or a label out of range.
    """
    check_classes(classes)
    files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not files:
        fail(ValueError, "paths", paths, "at least one file")
    heading = 1 if classes == 10 else 2
    images, labels = [], []
    for path in files:
        with open_maybe_gzip(path) as (stream, most):
            content = np.frombuffer(read_upto(stream, min(most, MOST_BYTES)), np.uint8)
        record = heading + PIXELS
        count, rest = divmod(len(content), record)
        if rest or not count:
            raise FormatError(
                f"{path}: {len(content)} bytes, expected a multiple of {record} (one label or two, "
                f"then 3x32x32 pixels): {count} whole records and {rest} bytes over"
            )
        records = content.reshape(count, record)
        part = records[:, heading - 1]
        if (part >= classes).any():
            where = int(np.flatnonzero(part >= classes)[0])
            raise FormatError(
                f"{path}: label of sample {where} is {part[where]}, expected 0 to {classes - 1}"
            )
        labels.append(part)
        images.append(records[:, heading:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1))
    pixels = np.ascontiguousarray(np.concatenate(images))
    return ArrayDataset(pixels, np.concatenate(labels), classes, name or Path(files[0]).name)


def load_cifar(
    directory: str | os.PathLike[str], *, train: bool = True, classes: int = 10, name: str = ""
) -> ArrayDataset:
    """Read a split from a directory with the files' usual names.

    Args:
        directory: Holds ``data_batch_1.bin`` ... (CIFAR-10) or ``train.bin`` ... (CIFAR-100),
            itself or in its ``cifar-10-batches-bin`` / ``cifar-100-binary``.
        train: The training split, or the test split.
        classes: 10 or 100.
        name: What messages call it.
    """
    folder = Path(directory)
    inner = folder / (
        "cifar-10-batches-bin" if check_classes(classes) == 10 else "cifar-100-binary"
    )
    if inner.is_dir():
        folder = inner
    label = name or f"cifar{classes}/{'train' if train else 'val'}"
    return read_cifar([folder / f for f in FILES[classes, train]], classes=classes, name=label)


def write_cifar(path: str | os.PathLike[str], dataset: ArrayDataset) -> None:
    """Write a data set of 32x32 colour pictures in 10 or 100 classes as one binary file.

    Raises:
        FormatError: Other pictures or another number of classes.
    """
    if dataset.image_shape != (32, 32, 3) or dataset.num_classes not in (10, 100):
        raise FormatError(
            f"{path}: pictures of {dataset.image_shape} in {dataset.num_classes} classes, expected "
            "(32, 32, 3) in 10 or 100"
        )
    columns = [dataset.labels.astype(np.uint8)[:, None]]
    if dataset.num_classes == 100:
        columns.insert(0, np.array(COARSE, np.uint8)[dataset.labels][:, None])
    pixels = dataset.images.transpose(0, 3, 1, 2).reshape(len(dataset), PIXELS)
    write_atomically(path, np.concatenate((*columns, pixels), axis=1).tobytes())
