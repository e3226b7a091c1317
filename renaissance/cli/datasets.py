"""The data of ``renaissance train``: what lies in a directory, augmented to suit, as loaders."""

from __future__ import annotations

import argparse
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from renaissance import data
from renaissance.core.errors import check_int, fail
from renaissance.data.catalog import entry_of, open_split

Dataset = data.ArrayDataset | data.EncodedDataset
Transforms = tuple[data.Transform, ...]

SMALL_SIDE = 64
"""Pictures up to this side are decoded once and augmented by small shifts."""


class Source(NamedTuple):
    """Two splits and the normalisation that suits them."""

    train: Dataset
    val: Dataset
    normalization: data.Normalization


class Loaders(NamedTuple):
    """Training and validation batches."""

    train: data.Loader
    val: data.Loader


def open_data(options: argparse.Namespace, batch: int) -> Loaders:
    """Loaders over the data the options ask for.

    Raises:
        ValueError: the network needs a directory, or brings its own data.
        FileNotFoundError, FormatError: the directory holds nothing known, or a broken file.
    """
    source = open_source(options)
    side = options.resolution
    if side is not None:
        check_int("--resolution", side, 1)
    elif isinstance(source.train, data.EncodedDataset):
        side = 224
    augment = options.augment
    if augment is None:
        augment = options.network not in ("digits", "mlp")
    train, val = transforms_for(source.train, side, augment, options.network == "mlp")
    common = {
        "seed": options.seed,
        "normalization": source.normalization,
        "dtype": np.float16 if options.amp else np.float32,
        "workers": options.workers,
    }
    val_batch = even_batch(len(source.val), max(batch, 200))
    return Loaders(
        data.loader(source.train, batch_size=batch, shuffle=True, transforms=train, **common),
        data.loader(source.val, batch_size=val_batch, transforms=val, **common),
    )


def even_batch(samples: int, limit: int) -> int:
    """A batch size up to ``limit`` that cuts ``samples`` into nearly equal batches.

    Batches of one size need one executable.
    """
    return -(-samples // -(-samples // limit))


def open_source(options: argparse.Namespace) -> Source:
    """The two splits."""
    if options.network == "digits":
        if options.data is not None:
            fail(ValueError, "--data", options.data, "nothing: digits brings its own data")
        return Source(*data.load_digits(), data.DIGITS)
    if options.data is None:
        fail(ValueError, "--data", None, f"a directory with pictures for {options.network}")
    place = Path(options.data).expanduser()
    kind = detect(place) if options.format == "auto" else options.format
    if kind == "dts":
        train, val = (data.open_dts(place / f"{split}.dts") for split in ("train", "val"))
        return Source(train, val, normalization_for(train))
    train = open_split(kind, place, train=True)
    val = open_split(kind, place, train=False)
    return Source(decoded_if_small(train), decoded_if_small(val), entry_of(kind).normalization)


def detect(place: Path) -> str:
    """The format of a data set by the names of its files.

    Raises:
        FileNotFoundError: there is nothing there, or nothing known.
    """
    if place.is_file() and tarfile.is_tarfile(place):
        return "folder"
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such directory, expected one with a data set")
    signs = {
        "dts": ("train.dts",),
        "mnist": ("*ubyte*",),
        "cifar10": ("data_batch_1.bin*",),
        "cifar100": ("train.bin*",),
        "folder": ("train/",),
    }
    for kind, patterns in signs.items():
        if any(found for pattern in patterns for found in place.glob(pattern)):
            return kind
    found = ", ".join(sorted(p.name for p in place.iterdir())[:5]) or "nothing"
    raise FileNotFoundError(
        f"{place}: holds {found}; expected IDX files (train-images-idx3-ubyte and its three "
        "companions, gzipped or not), CIFAR's .bin files, train.dts and val.dts, or folders train "
        "and val of one folder per class"
    )


def decoded_if_small(dataset: Dataset) -> Dataset:
    """Small encoded pictures as pixels in memory: decoded once instead of every epoch."""
    if isinstance(dataset, data.EncodedDataset) and max(dataset.decode(0).shape) <= SMALL_SIDE:
        return data.decode_all(dataset)
    return dataset


def normalization_for(dataset: Dataset) -> data.Normalization:
    """The usual normalisation of pictures that do not say where they come from."""
    if isinstance(dataset, data.EncodedDataset):
        return data.IMAGENET
    return data.CIFAR if dataset.image_shape[2] == 3 else data.MNIST


def transforms_for(
    dataset: Dataset, side: int | None, augment: bool, digits: bool
) -> tuple[Transforms, Transforms]:
    """Transforms of the training and the validation pictures.

    Args:
        dataset: The training split.
        side: Of the pictures wanted; None: as they are.
        augment: Whether training pictures are distorted.
        digits: Whether they are digits for a dense network, which may turn but not be mirrored.
    """
    if isinstance(dataset, data.EncodedDataset):
        assert side is not None
        val = (data.Resize(side * 8 // 7), data.CenterCrop(side))
        if not augment:
            return val, val
        return (data.RandomResizedCrop(side), data.RandomHorizontalFlip()), val
    height, width, channels = dataset.image_shape
    resized: Transforms = ()
    if side is not None and (height, width) != (side, side):
        resized, height, width = (data.Resize((side, side)),), side, side
    if not augment:
        return resized, resized
    margin = max(1, min(height, width) // 8)
    if digits:
        shift = (data.Pad(max(1, margin // 2 + 1)), data.RandomCrop((height, width)))
        distort = (data.RandomRotation(20), data.RandomScale(0.8, 1.2), data.RandomErasing(0.5))
        return (*resized, *shift, *distort), resized
    shift = (data.Pad(margin), data.RandomCrop((height, width)))
    mirror: Transforms = (data.RandomHorizontalFlip(),) if channels == 3 else ()
    return (*resized, *shift, *mirror), resized
