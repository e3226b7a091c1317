"""A loader whose batches are copied to the device ahead of the steps that use them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax

from renaissance.data.device_pipeline import copy_to_device
from renaissance.data.loader import Loader
from renaissance.data.normalization import Normalization
from renaissance.data.preparation import Dataset, Preparation
from renaissance.data.transfer import TransferStation
from renaissance.data.transforms import Transform

DeviceBatch = tuple[jax.Array, jax.Array]


class TransferredLoader:
    """The batches of a loader, on a device::

        for images, labels in TransferredLoader(loader(dataset, batch_size=256)).batches(epoch):
            state, metrics = program.train_step(state, (images, labels))

    While a step computes, the next batch travels from one of two page-locked slots and the
    processors fill the other.

    Attributes:
        host: The loader.
        dataset: Its samples.
        batch_size: Samples of a full batch.
        image_shape: Height, width and channels of the images in a batch.
        station: The two slots.
    """

    def __init__(self, host: Loader, device: jax.Device | None = None) -> None:
        """Make the slots.

        Args:
            host: Prepares the batches.
            device: Where they go; the default one unless given.
        """
        self.host = host
        self.dataset: Dataset = host.dataset
        self.batch_size = host.batch_size
        self.image_shape = host.image_shape
        place = jax.local_devices()[0] if device is None else device
        self.station: TransferStation[DeviceBatch] = TransferStation(
            host,
            partial(copy_to_device, device=device),
            jax.block_until_ready,
            pinned=place.platform == "gpu",
        )

    @property
    def preparation(self) -> Preparation:
        """How samples become batches."""
        return self.host.preparation

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Applied in order, before the normalisation."""
        return self.host.transforms

    @property
    def normalization(self) -> Normalization:
        """What ends the chain."""
        return self.host.normalization

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self.host)

    def batches(self, epoch: int) -> Iterator[DeviceBatch]:
        """The batches of an epoch: images [n, h, w, c], labels int32 [n]. One epoch at a time."""
        return self.station.batches(epoch)

    def close(self) -> None:
        """End the host loader's threads."""
        self.host.close()
