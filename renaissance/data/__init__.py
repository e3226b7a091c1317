"""The data room: from files on disk to ready batches.

Data sets: :class:`ArrayDataset` in memory, read by :func:`load_digits` (shipped with the package),
:func:`load_mnist`, :func:`load_idx` and :func:`read_dts`, written by :func:`write_dts`.

Batches: :func:`loader` turns a data set into an iterator of ``(images, labels)``.
"""

from renaissance.data.dataset import ArrayDataset
from renaissance.data.digits import DIGITS, load_digits
from renaissance.data.dts import read_dts, write_dts
from renaissance.data.dts_header import DtsHeader
from renaissance.data.idx import load_idx, load_mnist, read_idx, write_idx
from renaissance.data.loader import Loader, loader
from renaissance.data.normalization import (
    CIFAR,
    IMAGENET,
    MLPERF,
    MNIST,
    NO_NORM,
    Normalization,
)

__all__ = [
    "CIFAR",
    "DIGITS",
    "IMAGENET",
    "MLPERF",
    "MNIST",
    "NO_NORM",
    "ArrayDataset",
    "DtsHeader",
    "Loader",
    "Normalization",
    "load_digits",
    "load_idx",
    "load_mnist",
    "loader",
    "read_dts",
    "read_idx",
    "write_dts",
    "write_idx",
]
