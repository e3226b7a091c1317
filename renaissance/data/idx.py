"""IDX, the format of MNIST and Fashion-MNIST, gzipped or not whatever the file's name.

Layout (big endian): two zero bytes, an element type (8: uint8), the number of dimensions, one u32
per dimension, the elements in row-major order. http://yann.lecun.com/exdb/mnist
"""

from __future__ import annotations

import gzip
import os
import struct
from math import prod
from pathlib import Path

import numpy as np

from renaissance.core.errors import FormatError
from renaissance.data.dataset import ArrayDataset
from renaissance.data.files import (
    check_promise,
    open_maybe_gzip,
    read_payload,
    read_upto,
    write_atomically,
)

UINT8 = 8
MOST_DIMENSIONS = 4


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one IDX file of uint8 elements.

    Args:
        path: The file, gzipped or not; the content decides, not the name.

    Returns:
        uint8 array with the file's dimensions (1 to 4 of them).

    Raises:
        FileNotFoundError: No such file.
        FormatError: Wrong magic or element type, truncated or too long; expected and actual sizes
            are in the message.
    """
    path = Path(path)
    with open_maybe_gzip(path) as (stream, most):
        magic = bytes(read_upto(stream, 4))
        if len(magic) < 4:
            raise FormatError(f"{path}: truncated, {len(magic)} bytes where the magic takes 4")
        if magic[:2] != b"\0\0" or magic[2] != UINT8 or not 1 <= magic[3] <= MOST_DIMENSIONS:
            raise FormatError(
                f"{path}: magic is 0x{magic.hex()}, expected 0x0000080n with n = 1 to "
                f"{MOST_DIMENSIONS} dimensions (IDX of uint8)"
            )
        rank = magic[3]
        sizes = bytes(read_upto(stream, 4 * rank))
        if len(sizes) < 4 * rank:
            raise FormatError(
                f"{path}: truncated, {4 + len(sizes)} bytes where the header takes {4 + 4 * rank}"
            )
        shape = struct.unpack(f">{rank}I", sizes)
        header, expected = 4 + 4 * rank, prod(shape)
        check_promise(path, header + expected, most)
        content = read_payload(stream, path, header, expected)
    return np.frombuffer(content, np.uint8).reshape(shape)


def write_idx(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write a uint8 array as IDX; gzipped if the name ends in ``.gz``."""
    array = np.ascontiguousarray(array)
    if array.dtype != np.uint8 or not 1 <= array.ndim <= MOST_DIMENSIONS:
        raise FormatError(
            f"{path}: cannot write {array.dtype} with {array.ndim} dimensions as IDX, expected "
            f"uint8 with 1 to {MOST_DIMENSIONS}"
        )
    header = struct.pack(f">4B{array.ndim}I", 0, 0, UINT8, array.ndim, *array.shape)
    content = header + array.tobytes()
    if str(path).endswith(".gz"):
        content = gzip.compress(content, 9, mtime=0)
    write_atomically(path, content)


def load_idx(
    images: str | os.PathLike[str],
    labels: str | os.PathLike[str],
    *,
    num_classes: int = 10,
    name: str = "",
) -> ArrayDataset:
    """Read a pair of IDX files.

    Args:
        images: File with dimensions ``[n, h, w]`` or ``[n, h, w, c]``.
        labels: File with dimensions ``[n]``.
        num_classes: Labels must lie below it.
        name: What messages call the data set; the images' file name unless given.

    Raises:
        FileNotFoundError, FormatError: As :func:`read_idx`; also counts that differ and labels out
            of range.
    """
    pixels, targets = read_idx(images), read_idx(labels)
    if pixels.ndim not in (3, 4):
        raise FormatError(f"{images}: {pixels.ndim} dimensions, expected 3 or 4 (images)")
    if targets.ndim != 1:
        raise FormatError(f"{labels}: {targets.ndim} dimensions, expected 1 (labels)")
    if len(pixels) != len(targets):
        raise FormatError(
            f"{images} holds {len(pixels)} images but {labels} holds {len(targets)} labels"
        )
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    return ArrayDataset(pixels, targets, num_classes, name or Path(images).name)


def find_idx(directory: str | os.PathLike[str], stem: str) -> Path:
    """The file called ``stem``, with or without ``.gz`` and with ``-idx`` or ``.idx``.

    Raises:
        FileNotFoundError: None of the usual names is there; the message lists them.
    """
    directory = Path(directory)
    names = [stem, stem.replace("-idx", ".idx")]
    candidates = [f"{name}{ending}" for name in names for ending in (".gz", "")]
    for candidate in candidates:
        if (directory / candidate).is_file():
            return directory / candidate
    raise FileNotFoundError(f"{directory}: holds none of {', '.join(candidates)}")


def load_mnist(
    directory: str | os.PathLike[str], *, train: bool = True, name: str = "mnist"
) -> ArrayDataset:
    """Read a split of MNIST or Fashion-MNIST from a directory with the four usual IDX files.

    Args:
        directory: Holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and the two
            ``t10k-`` files, gzipped or not.
        train: The 60,000 training samples, or the 10,000 for validation.
        name: What messages call it.

    Raises:
        FileNotFoundError, FormatError: As :func:`load_idx`.
    """
    if not Path(directory).is_dir():
        raise FileNotFoundError(f"{directory}: no such directory, expected one with IDX files")
    prefix = "train" if train else "t10k"
    return load_idx(
        find_idx(directory, f"{prefix}-images-idx3-ubyte"),
        find_idx(directory, f"{prefix}-labels-idx1-ubyte"),
        name=f"{name}/{'train' if train else 'val'}",
    )
