"""The same work as data_pipeline.py's by torchvision on Pillow pictures, with its DataLoader.

Needs torch and torchvision; imported by ``data_pipeline.py --peers`` only.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as tv

from renaissance import data

Rows = dict[str, dict[str, Callable[[], object]]]


class Pictures(Dataset):
    """Pixels in memory, as Pillow pictures through a transform."""

    def __init__(self, source: data.ArrayDataset, transform: object) -> None:
        self.images = [Image.fromarray(i.squeeze()) for i in source.images]
        self.labels = source.labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


class Files(Dataset):
    """JPEGs in memory, decoded by Pillow."""

    def __init__(self, folder: Path, transform: object) -> None:
        source = data.FolderDataset(folder)
        self.contents = [source.read(i) for i in range(len(source))]
        self.labels = source.labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(self.contents[index])) as picture:
            return self.transform(picture.convert("RGB")), self.labels[index]


def loaders(
    dataset: Dataset, batch: int, processes: tuple[int, ...]
) -> dict[str, Callable[[], object]]:
    """One row per number of worker processes."""
    found: dict[str, Callable[[], object]] = {}
    for workers in processes:
        loader = DataLoader(
            dataset, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )
        found[f"torchvision + DataLoader, {workers} worker processes"] = lambda d=loader: d
    return found


def rows(
    mnist: data.ArrayDataset, cifar: data.ArrayDataset, folder: Path, processes: tuple[int, ...]
) -> Rows:
    """Loaders of the three parts, for each number of worker processes."""
    torch.set_num_threads(1)
    five = tv.Compose(
        [
            tv.Pad(2),
            tv.RandomCrop(28),
            tv.RandomRotation(20, tv.InterpolationMode.BILINEAR),
            tv.RandomAffine(0, scale=(0.8, 1.2), interpolation=tv.InterpolationMode.BILINEAR),
            tv.ToTensor(),
            tv.Normalize((0.1307,), (0.3081,)),
            tv.RandomErasing(0.5),
        ]
    )
    crop_flip = tv.Compose(
        [
            tv.RandomCrop(32, padding=4),
            tv.RandomHorizontalFlip(),
            tv.ToTensor(),
            tv.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ]
    )
    imagenet = tv.Compose(
        [
            tv.RandomResizedCrop(224),
            tv.RandomHorizontalFlip(),
            tv.ToTensor(),
            tv.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    few = mnist.subset(np.arange(10_000))
    return {
        "mnist": loaders(Pictures(few, five), 200, processes),
        "cifar": loaders(Pictures(cifar, crop_flip), 200, processes),
        "imagenet": loaders(Files(folder, imagenet), 25, processes),
    }
