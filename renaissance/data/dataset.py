"""ArrayDataset: labelled pictures in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from renaissance.core.errors import FormatError, check_int, fail


@dataclass(frozen=True, slots=True, eq=False)
class ArrayDataset:
    """A whole split in host memory.

    Attributes:
        images: uint8 ``[n, h, w, c]``, NHWC.
        labels: int32 ``[n]``, each in ``[0, num_classes)``.
        num_classes: Number of classes.
        name: What messages call it.

    Raises:
        TypeError: Images are not uint8 or labels are no integers.
        FormatError: Ranks or counts do not fit, or a label is out of range; the message says which
            sample.
    """

    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    name: str = "dataset"

    def __post_init__(self) -> None:
        check_int("num_classes", self.num_classes, 1)
        images, labels = np.asarray(self.images), np.asarray(self.labels)
        if images.dtype != np.uint8:
            fail(TypeError, f"{self.name}: dtype of images", str(images.dtype), "uint8")
        if labels.dtype.kind not in "iu":
            fail(TypeError, f"{self.name}: dtype of labels", str(labels.dtype), "an integer type")
        if images.ndim != 4 or 0 in images.shape[1:]:
            fail(FormatError, f"{self.name}: shape of images", images.shape, "[n, h, w, c]")
        if labels.ndim != 1:
            fail(FormatError, f"{self.name}: shape of labels", labels.shape, "[n]")
        check_labels(self.name, labels, len(images), self.num_classes)
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels.astype(np.int32))

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one picture."""
        return self.images.shape[1:]  # type: ignore[return-value]

    def subset(self, indices: Sequence[int] | np.ndarray | slice, name: str = "") -> ArrayDataset:
        """The samples at ``indices``, in that order."""
        picked: Any = indices if isinstance(indices, slice) else np.asarray(indices)
        return ArrayDataset(
            self.images[picked], self.labels[picked], self.num_classes, name or self.name
        )

    def __repr__(self) -> str:
        h, w, c = self.image_shape
        return (
            f"ArrayDataset({self.name!r}, {len(self)} samples of {h}x{w}x{c}, "
            f"{self.num_classes} classes)"
        )


def check_labels(name: str, labels: np.ndarray, count: int, num_classes: int) -> None:
    """Raise FormatError unless there are ``count`` labels, all in ``[0, num_classes)``."""
    if len(labels) != count:
        raise FormatError(f"{name}: {count} images but {len(labels)} labels; one label per image")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        first = int(wrong[0])
        raise FormatError(
            f"{name}: label of sample {first} is {int(labels[first])}, expected 0 to "
            f"{num_classes - 1} ({len(wrong)} of {count} labels are out of range)"
        )
