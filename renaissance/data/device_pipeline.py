"""The pipeline on the device: for data sets that fit in its memory.

The uint8 pictures stay on the device; gather, transforms and normalisation run there, as one XLA
function here, or as one custom call inside a train step
(:mod:`renaissance.lowering.rewrites.augment`). All arithmetic is in 32-bit integers with the host's
own random numbers, and the values come from the host's own table, so a batch is equal to the
host's, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import check_int, fail
from renaissance.data import array_ops
from renaissance.data.chain import PAD, WINDOW, lower_chain
from renaissance.data.dataset import ArrayDataset
from renaissance.data.loader import MOST_SEED, Batch, Loader
from renaissance.data.normalization import Normalization, check_float, normalization_of
from renaissance.data.transforms import Transform


class DeviceData(NamedTuple):
    """A data set on the device: pass it to the compiled function as an argument.

    Attributes:
        images: uint8 [n, h, w, c].
        labels: int32 [n].
        table: [c, 256], the normalisation.
        seed: uint32 [2], low and high half.
        tables: int32, those of the chain's operations; see :meth:`Chain.tables`.
    """

    images: jax.Array
    labels: jax.Array
    table: jax.Array
    seed: jax.Array
    tables: jax.Array


@dataclass(frozen=True, eq=False)
class Rows:
    """Batches that are not made yet: a train step that is given them makes them itself.

    Attributes:
        pipeline: What makes them.
        data: From what, on the device.
        ids: The samples of each batch, int32 [s, n], or [n] for a single batch.
        epoch: Of the random numbers.
    """

    pipeline: DevicePipeline
    data: DeviceData
    ids: jax.Array
    epoch: int

    @property
    def batch_shape(self) -> tuple[int, int, int, int]:
        """Of the images of one batch."""
        return (self.ids.shape[-1], *self.pipeline.image_shape)

    def prepared(self) -> tuple[jax.Array, jax.Array]:
        """The batches: images [s, n, h, w, c] and labels int32 [s, n]; a single one has no s."""
        return self.pipeline.prepare(self.data, self.ids, np.uint32(self.epoch))


class DevicePipeline:
    """Prepares batches on the device::

        pipeline = DevicePipeline(train, transforms=[...], normalization="MNIST", seed=1)
        data = pipeline.place()

        @jax.jit
        def step(state, data, ids, epoch):
            images, labels = pipeline.batch(data, ids, epoch)
            ...

    Attributes:
        dataset: The samples.
        chain: The transforms as integers.
        image_shape: Height, width and channels of the images in a batch.
    """

    def __init__(
        self,
        dataset: ArrayDataset,
        *,
        transforms: Sequence[Transform] | Transform = (),
        normalization: Normalization | str | None = None,
        dtype: np.dtype | type | str = np.float32,
        channels: int | None = None,
        seed: int = 0,
    ) -> None:
        """Compile the chain to integers; nothing is placed yet.

        Args:
            dataset: Pictures in memory.
            transforms: Geometric ones: Pad, crops, flip, rotation, scale, erasing.
            normalization: A record, a preset's name, or None for pixels in [0, 1].
            dtype: float32 or float16 of the images.
            channels: Channels of the images, at least the data set's; added ones are 0.
            seed: 64-bit seed of every random decision.

        Raises:
            TypeError: A transform is not geometric.
            ShapeError: One does not fit the pictures.
        """
        if not isinstance(dataset, ArrayDataset):
            fail(TypeError, "dataset", type(dataset).__name__, "an ArrayDataset")
        self.dataset = dataset
        self.chain = lower_chain(transforms, dataset.image_shape)  # type: ignore[arg-type]
        h, w, c = self.chain.after
        self._channels = c if channels is None else check_int("channels", channels, c)
        self.image_shape = (h, w, self._channels)
        self._seed = check_int("seed", seed, 0, MOST_SEED)
        table = normalization_of(normalization).table(c, check_float(dtype))
        self._table = table

    @classmethod
    def of(cls, loader: Loader) -> DevicePipeline:
        """The device's twin of a loader: the same samples, transforms and random numbers."""
        preparation = loader.preparation
        if not isinstance(loader.dataset, ArrayDataset):
            fail(TypeError, "loader's dataset", loader.dataset, "an ArrayDataset")
        return cls(
            loader.dataset,
            transforms=preparation.transforms,
            normalization=preparation.normalization,
            dtype=preparation.dtype,
            channels=preparation.out_channels,
            seed=preparation.seed,
        )

    @property
    def draws(self) -> bool:
        """Whether any transform is random."""
        return any(op.kind not in (PAD, WINDOW) for op in self.chain.operations)

    def place(self, device: jax.Device | None = None) -> DeviceData:
        """Copy the data set to a device; the default one unless given."""
        halves = np.array([self._seed & 0xFFFFFFFF, self._seed >> 32], np.uint32)
        data = self.dataset
        arrays = (data.images, data.labels, self._table, halves, self.chain.tables())
        return DeviceData(*(jax.device_put(jnp.array(a, copy=True), device) for a in arrays))

    def batch(
        self, data: DeviceData, ids: jax.Array, epoch: jax.Array | int
    ) -> tuple[jax.Array, jax.Array]:
        """Prepare samples: a pure function, to be called inside a compiled one.

        Args:
            data: From :meth:`place`.
            ids: Sample ids, int32 [count], each in range.
            epoch: Epoch, a number or an integer scalar.

        Returns:
            Images [count, h, w, c] and labels int32 [count].
        """
        draw = array_ops.draws(
            jnp,
            self.chain,
            (data.seed[0], data.seed[1]),
            ids.astype(jnp.uint32),
            jnp.asarray(epoch, jnp.uint32),
            jax.lax.optimization_barrier,
            getattr(jax.lax, "mulhi", array_ops.upper_half_narrow),  # younger than jax itself
        )
        images, finish = array_ops.run_chain(
            jnp, self.chain, data.images[ids], draw, jax.lax.optimization_barrier
        )
        values = array_ops.normalize(jnp, images, finish, data.table, self._channels)
        return values, data.labels[ids]

    @cached_property
    def prepare(self) -> Any:
        """:meth:`batch` compiled, for the ids of one batch or of several, int32 [n] or [s, n]."""

        def prepare(
            data: DeviceData, ids: jax.Array, epoch: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            images, labels = self.batch(data, ids.reshape(-1), epoch)
            return images.reshape(*ids.shape, *self.image_shape), labels.reshape(ids.shape)

        return jax.jit(prepare)


def copy_to_device(batch: Batch, device: jax.Device | None = None) -> tuple[jax.Array, jax.Array]:
    """Copy a host batch to a device: the ``put`` of a transfer station.

    The copy never shares the host's memory, which the CPU backend would do if left alone; a slot
    can be refilled once the result is ready.
    """
    images, labels = batch
    platform = jax.default_backend() if device is None else device.platform
    if platform == "cpu":  # it takes a numpy array's memory over, whatever may_alias says
        images, labels = images.copy(), labels.copy()
    return jax.device_put(images, device), jax.device_put(labels, device)
