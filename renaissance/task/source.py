"""What a task asks of its data: batches by epoch, and a few numbers known before any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np

from renaissance.core.errors import fail
from renaissance.core.settings import GlobalSettings
from renaissance.data.device_pipeline import Rows


class LabelledData(Sized, Protocol):
    """The samples behind a loader."""

    num_classes: int
    name: str


@runtime_checkable
class BatchSource(Protocol):
    """A loader: :func:`renaissance.data.loader` makes one, anything of this form will do.

    Attributes:
        dataset: The samples, for their number and classes.
        batch_size: Samples of a full batch.
        image_shape: Height, width and channels of the pictures in a batch.
    """

    dataset: Any
    batch_size: int

    @property
    def image_shape(self) -> tuple[int, int, int]: ...

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def batches(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The (images, labels) of an epoch counted from 0, the same each time."""
        ...


@runtime_checkable
class LoaderMaker(Protocol):
    """Makes both loaders once the batch size, seed and type are known.

    A committed :class:`renaissance.data.Preprocessor` is one.
    """

    def train_loader(self, batch_size: int, *, seed: int = 0, **how: Any) -> Any:
        """Training batches."""
        ...

    def val_loader(self, batch_size: int, *, seed: int = 0, **how: Any) -> Any:
        """Validation batches."""
        ...


def make_loaders(maker: LoaderMaker, settings: GlobalSettings) -> tuple[BatchSource, BatchSource]:
    """The training and validation loaders that go with the settings.

    Raises:
        ValueError: the settings name no batch size.
        PhaseError: the maker is not ready.
    """
    size = settings.batch_size
    if size is None:
        fail(ValueError, "batch size", None, "a call of local_batch_size(...) on the settings")
    how: dict[str, Any] = {
        "seed": settings.seed,
        "dtype": np.float16 if settings.amp else np.float32,
    }
    val_size = size if settings.val_batch_size is None else settings.val_batch_size
    return maker.train_loader(size, **how), maker.val_loader(val_size, **how)


def check_source(name: str, value: Any) -> BatchSource:
    """Return ``value`` if it has the form of a loader."""
    if isinstance(value, type) or not isinstance(value, BatchSource):
        fail(
            TypeError,
            name,
            type(value).__name__,
            "a loader such as rn.data.loader(dataset, batch_size=...)",
        )
    return value


def picture_dtype(source: BatchSource) -> np.dtype:
    """Type of the pictures in a batch, float32 where the source does not say."""
    return np.dtype(getattr(getattr(source, "preparation", source), "dtype", np.float32))


@runtime_checkable
class StackedSource(BatchSource, Protocol):
    """A source whose samples lie on the device, from which a training call makes its batches.

    :class:`renaissance.data.device_loader.DeviceLoader` is one.

    Attributes:
        stack_sizes: Batches that each call of an epoch trains on, in order.
    """

    @property
    def stack_sizes(self) -> tuple[int, ...]: ...

    def rows(self, epoch: int) -> Iterator[Rows]:
        """What each call of an epoch makes its batches from."""
        ...

    def blank(self, steps: int, size: int) -> Rows:
        """So many batches of ``size`` samples for one call, to compile with."""
        ...

    def warm_up(self) -> None:
        """Compile what makes batches outside a training call."""
        ...


def last_batch_size(source: BatchSource) -> int:
    """Samples of the last batch of an epoch, smaller than the others if it is not full."""
    rest = len(source.dataset) - (len(source) - 1) * source.batch_size
    return min(rest, source.batch_size)


def describe_source(source: BatchSource) -> dict[str, Any]:
    """A source as plain values, for a configuration file."""
    facts: dict[str, Any] = {
        "name": source.dataset.name,
        "samples": len(source.dataset),
        "classes": source.dataset.num_classes,
        "image_shape": source.image_shape,
        "batch_size": source.batch_size,
        "batches": len(source),
    }
    for name in ("normalization", "transforms"):
        if getattr(source, name, None):
            facts[name] = repr(getattr(source, name))
    return facts
