"""The data of ``renaissance train``: what lies in a directory, as loaders."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from renaissance import data
from renaissance.core.errors import fail


class Loaders(NamedTuple):
    """Training and validation batches."""

    train: data.Loader
    val: data.Loader


class Source(NamedTuple):
    """Two splits and the normalisation that suits them."""

    train: data.ArrayDataset
    val: data.ArrayDataset
    normalization: data.Normalization


def open_data(options: argparse.Namespace, batch: int) -> Loaders:
    """Loaders over the data the options ask for.

    Raises:
        ValueError: the network needs a directory, or brings its own data.
        FileNotFoundError, FormatError: the directory holds nothing known, or a broken file.
    """
    if options.network == "digits":
        if options.data is not None:
            fail(ValueError, "--data", options.data, "nothing: digits brings its own data")
        source = Source(*data.load_digits(), data.DIGITS)
    elif options.data is None:
        fail(ValueError, "--data", None, f"a directory with pictures for {options.network}")
    else:
        source = read_directory(Path(options.data))
    common = {
        "seed": options.seed,
        "normalization": source.normalization,
        "dtype": np.float16 if options.amp else np.float32,
    }
    return Loaders(
        data.loader(source.train, batch_size=batch, shuffle=True, **common),
        data.loader(source.val, batch_size=min(max(batch, 200), len(source.val)), **common),
    )


def read_directory(directory: Path) -> Source:
    """The two splits in a directory: IDX files, or ``train.dts`` and ``val.dts``.

    Raises:
        FileNotFoundError: there is no such directory, or nothing known in it.
        FormatError: a file is not what its name says.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory, expected one with a data set")
    if any(directory.glob("*ubyte*")):
        return Source(
            data.load_mnist(directory, train=True),
            data.load_mnist(directory, train=False),
            data.MNIST,
        )
    if (directory / "train.dts").is_file():
        train, val = (data.read_dts(directory / f"{split}.dts") for split in ("train", "val"))
        return Source(train, val, data.CIFAR if train.image_shape[2] == 3 else data.MNIST)
    found = ", ".join(sorted(p.name for p in directory.iterdir())[:5]) or "nothing"
    raise FileNotFoundError(
        f"{directory}: holds {found}; expected IDX files (train-images-idx3-ubyte and its three "
        "companions, gzipped or not) or train.dts and val.dts"
    )
