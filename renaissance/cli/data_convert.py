"""Finding out what lies somewhere, and writing it in another format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from renaissance import data
from renaissance.core.errors import FormatError
from renaissance.data.catalog import open_dts, open_split
from renaissance.data.cifar import FILES
from renaissance.data.codec import JPEG_MAGIC
from renaissance.data.encoded import EncodedDataset
from renaissance.data.preparation import Dataset

SPLITS = ("train", "val")
CIFAR_FOLDERS = {10: "cifar-10-batches-bin", 100: "cifar-100-binary"}


def recognise(path: Path) -> str:
    """The format of what lies at a path.

    Raises:
        FileNotFoundError: Nothing is there, or nothing known.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    if path.is_file():
        with open(path, "rb") as file:
            return "dts" if file.read(4) == b".DTS" else "folder"
    if any(path.glob("train.dts")) or any(path.glob("val.dts")):
        return "dts"
    if any(path.glob("*idx?-ubyte*")):
        return "mnist"
    for classes in (10, 100):
        folder = path / CIFAR_FOLDERS[classes]
        if (folder if folder.is_dir() else path).joinpath(FILES[classes, False][0]).is_file():
            return f"cifar{classes}"
    if any((path / name).is_dir() for name in ("train", "val", "validation", "test")):
        return "folder"
    raise FileNotFoundError(
        f"{path}: holds nothing known; expected IDX files, CIFAR's binary files, train.dts and "
        "val.dts, or folders train and val with class folders"
    )


def open_any(args: argparse.Namespace, split: str) -> Dataset:
    """Open one split of the source."""
    kind = recognise(args.source) if args.format == "auto" else args.format
    if kind == "dts" and args.source.is_file():
        return open_dts(args.source)
    name = "mnist" if kind == "dts" else kind  # DTS files say themselves what they are
    return open_split(
        name,
        args.source,
        train=split == "train",
        channels=args.channels,
        dts=kind == "dts",
        in_memory=False if kind == "dts" and is_blocks(args.source, split) else kind != "folder",
    )


def is_blocks(folder: Path, split: str) -> bool:
    """Whether a directory's DTS file holds blocks, which are read where they lie."""
    return data.DtsBlocks is type(open_dts(folder / f"{split}.dts", in_memory=False))


def open_splits(args: argparse.Namespace) -> Iterator[tuple[str, Dataset]]:
    """The splits asked for, one after the other; of a single DTS file the one it is."""
    kind = recognise(args.source) if args.format == "auto" else args.format
    if kind == "dts" and args.source.is_file():
        dataset = open_dts(args.source)
        yield dataset.name.rsplit("/", 1)[-1], dataset
        return
    for split in SPLITS if args.split == "both" else (args.split,):
        yield split, open_any(args, split)


def convert(dataset: Dataset, args: argparse.Namespace, split: str) -> list[Path]:
    """Write one split; returns the files or the folder written."""
    if args.decode and isinstance(dataset, EncodedDataset):
        dataset = data.decode_all(dataset)
    if args.to == "dts":
        path = args.target / f"{split}.dts"
        training = split == "train"
        if isinstance(dataset, EncodedDataset):
            data.write_dts_blocks(path, dataset, is_training=training, level=args.level)
        else:
            data.write_dts(path, dataset, is_training=training)
        return [path]
    if isinstance(dataset, EncodedDataset):
        return [write_folders(dataset, args.target / split)]
    return write_raw(dataset, args.target, split)


def write_raw(dataset: data.ArrayDataset, target: Path, split: str) -> list[Path]:
    """Grey pictures as IDX, CIFAR's as its binary files.

    Raises:
        FormatError: Neither format holds such pictures.
    """
    if dataset.image_shape[2] == 1 and dataset.num_classes <= 256:
        prefix = "train" if split == "train" else "t10k"
        images = target / f"{prefix}-images-idx3-ubyte.gz"
        labels = target / f"{prefix}-labels-idx1-ubyte.gz"
        data.write_idx(images, dataset.images[..., 0])
        data.write_idx(labels, dataset.labels.astype(np.uint8))
        return [images, labels]
    if dataset.image_shape == (32, 32, 3) and dataset.num_classes in CIFAR_FOLDERS:
        classes = dataset.num_classes
        names = FILES[classes, split == "train"]
        parts = np.array_split(np.arange(len(dataset)), len(names))
        paths = [target / CIFAR_FOLDERS[classes] / name for name in names]
        for path, part in zip(paths, parts, strict=True):
            data.write_cifar(path, dataset.subset(part))
        return paths
    raise FormatError(
        f"{dataset}: no raw format holds it; expected grey pictures (IDX) or 32x32 colour ones in "
        "10 or 100 classes (CIFAR)"
    )


def write_folders(dataset: EncodedDataset, target: Path) -> Path:
    """Encoded pictures as class folders, their bytes unchanged."""
    names = dataset.class_names or tuple(f"{k:04}" for k in range(dataset.num_classes))
    for index in range(len(dataset)):
        content = dataset.read(index)
        ending = ".jpg" if content[:2] == JPEG_MAGIC else ".png"
        folder = target / names[int(dataset.labels[index])]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index:08}{ending}").write_bytes(content)
    return target
