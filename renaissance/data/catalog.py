"""The data sets known by name: how each is read, normalised, and where it may be fetched from."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from renaissance.core.errors import FormatError, fail
from renaissance.data.cifar import load_cifar
from renaissance.data.digits import DIGITS, load_digits
from renaissance.data.dts import map_dts, read_dts, read_dts_header
from renaissance.data.dts_blocks import DtsBlocks
from renaissance.data.encoded import EncodedDataset
from renaissance.data.folder import FolderDataset, TarDataset
from renaissance.data.idx import load_mnist
from renaissance.data.normalization import CIFAR, IMAGENET, MNIST, Normalization
from renaissance.data.preparation import Dataset

DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A data set known by name.

    Attributes:
        normalization: The usual one.
        read: Reads a split: (directory, train, channels) to a data set.
        needs_path: Whether it lies in a directory of the user's.
    """

    normalization: Normalization
    read: Callable[[Path, bool, int], Dataset]
    needs_path: bool = True


def read_digits(path: Path, train: bool, channels: int) -> Dataset:
    """The digits shipped with the package."""
    return load_digits()[0 if train else 1]


def read_fashion(path: Path, train: bool, channels: int) -> Dataset:
    """Fashion-MNIST, from a directory or from Debian's package."""
    return load_mnist(path, train=train, name="fashion")


def read_folders(path: Path, train: bool, channels: int) -> Dataset:
    """Class folders or a tar of them: the split is a folder ``train`` or ``val`` (or ``test``)."""
    if path.is_file():
        return read_tar(path, train, channels)
    for split in ("train",) if train else ("val", "validation", "test"):
        if (path / split).is_dir():
            return FolderDataset(path / split, channels=channels, name=f"{path.name}/{split}")
    wanted = "train" if train else "val, validation or test"
    raise FileNotFoundError(f"{path}: holds no folder {wanted}, expected one with class folders")


def read_tar(path: Path, train: bool, channels: int) -> Dataset:
    """A split of a tar of class folders."""
    problem: FormatError | None = None
    for split in ("train",) if train else ("val", "validation", "test"):
        try:
            return TarDataset(path, prefix=split, channels=channels)
        except FormatError as error:
            problem = error
            if "no pictures under" not in str(error):
                raise
    assert problem is not None
    raise problem


ENTRIES: dict[str, Entry] = {
    "digits": Entry(DIGITS, read_digits, needs_path=False),
    "mnist": Entry(MNIST, lambda p, t, c: load_mnist(p, train=t)),
    "fashion_mnist": Entry(Normalization((0.2860,), (0.3530,)), read_fashion),
    "cifar10": Entry(CIFAR, lambda p, t, c: load_cifar(p, train=t, classes=10)),
    "cifar100": Entry(
        Normalization((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        lambda p, t, c: load_cifar(p, train=t, classes=100),
    ),
    "folder": Entry(IMAGENET, read_folders),
    "imagenet": Entry(IMAGENET, read_folders),
}


def entry_of(name: str) -> Entry:
    """The entry of a name; case and dashes do not matter.

    Raises:
        ValueError: No such name.
    """
    key = str(name).lower().replace("-", "_")
    if key not in ENTRIES:
        fail(ValueError, "dataset", name, f"one of {', '.join(ENTRIES)}")
    return ENTRIES[key]


def locate(name: str, path: str | os.PathLike[str] | None) -> Path:
    """The directory of a data set; Fashion-MNIST is also found where Debian installs it.

    Raises:
        ValueError: It needs a path.
    """
    entry = entry_of(name)
    if path is not None:
        return Path(path).expanduser()
    if not entry.needs_path:
        return Path()
    if entry is ENTRIES["fashion_mnist"] and DEBIAN_FASHION.is_dir():
        return DEBIAN_FASHION
    return fail(ValueError, f"path of {name}", path, "a directory that holds it")


def open_split(
    name: str,
    path: str | os.PathLike[str] | None,
    *,
    train: bool,
    channels: int = 3,
    dts: bool = False,
    in_memory: bool = True,
) -> Dataset:
    """Open a split of a data set.

    Args:
        name: One of the names of :data:`ENTRIES`.
        path: Its directory (or tar); with ``dts`` the one that holds train.dts and val.dts.
        train: The training split, else the validation split.
        channels: Declared channels of encoded pictures, 1 or 3.
        dts: Read DTS files instead of the original ones.
        in_memory: Hold everything in memory; else pictures are read when they are needed.

    Raises:
        ValueError: Unknown name, or no path where one is needed.
        FileNotFoundError, FormatError: It is not there, or damaged.
    """
    folder = locate(name, path)
    if dts:
        file = folder if folder.is_file() else folder / ("train.dts" if train else "val.dts")
        dataset = open_dts(file, in_memory=in_memory)
    else:
        dataset = entry_of(name).read(folder, train, channels)
    if in_memory and isinstance(dataset, EncodedDataset):
        dataset = dataset.in_memory()
    return dataset


def open_dts(path: str | os.PathLike[str], *, in_memory: bool = True) -> Dataset:
    """Open a DTS file of either form; not in memory, a small one is mapped."""
    if read_dts_header(path).num_blocks:
        return DtsBlocks(path)
    return read_dts(path) if in_memory else map_dts(path)
