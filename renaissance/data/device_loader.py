"""A loader's twin on the device: the samples lie there, and so do the batches it makes.

Batches come singly or as stacks of many, which one executable trains on with a loop inside; or as
the rows of the data set that they are made from, by the executable itself. The bytes of a batch are
those of the host's loader, whatever its place in a stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import check_int
from renaissance.data.dataset import ArrayDataset
from renaissance.data.device_pipeline import DeviceData, DevicePipeline, Rows
from renaissance.data.loader import Loader
from renaissance.data.normalization import Normalization
from renaissance.data.preparation import Preparation
from renaissance.data.transforms import Transform

STACK_BYTES = 256 << 20

DeviceBatch = tuple[jax.Array, jax.Array]


class DeviceLoader:
    """The batches of a loader, prepared on the device::

        train = DeviceLoader(loader(dataset, batch_size=200, shuffle=True, transforms=[...]))
        for rows in train.rows(epoch):
            state, metrics = program.train_steps(state, rows)

    Attributes:
        host: The loader whose twin it is.
        dataset: Its samples.
        batch_size: Samples of a full batch.
        image_shape: Height, width and channels of the images in a batch.
        stack_bytes: The most bytes of prepared pictures in one stack.
    """

    def __init__(self, host: Loader, *, stack_bytes: int = STACK_BYTES) -> None:
        """Nothing is placed yet: that happens on the default device of the first use.

        Args:
            host: Over pictures in memory, with geometric transforms.
            stack_bytes: Limits the pictures prepared at once; below two batches there are no
                stacks.

        Raises:
            TypeError: The samples are encoded, or a transform is not geometric.
        """
        self.host = host
        self.pipeline = DevicePipeline.of(host)
        self.dataset: ArrayDataset = self.pipeline.dataset
        self.batch_size = host.batch_size
        self.image_shape = self.pipeline.image_shape
        self.stack_bytes = check_int("stack_bytes", stack_bytes, 0)
        self._next: tuple[int, list[jax.Array]] | None = None
        self._kept: list[DeviceBatch] | None = None

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

    @cached_property
    def stack_sizes(self) -> tuple[int, ...]:
        """Batches in each stack of an epoch, in order; 1 stands for a batch that comes singly.

        Stacks are of one size where that costs at most twice as many of them, as each size needs
        an executable. A last batch that is not full comes singly.
        """
        whole = min(len(self), len(self.dataset) // self.batch_size)
        rest = (1,) * (len(self) - whole)
        batch_bytes = self.batch_size * int(np.prod(self.image_shape))
        most = self.stack_bytes // (batch_bytes * self.preparation.dtype.itemsize)
        if most < 2 or whole < 2:
            return (1,) * len(self)
        fewest = -(-whole // most)
        counts = range(fewest, min(2 * fewest, whole // 2) + 1)
        count = next((k for k in counts if whole % k == 0), fewest)
        larger = whole % count
        return (whole // count + 1,) * larger + (whole // count,) * (count - larger) + rest

    def batches(self, epoch: int) -> Iterator[DeviceBatch]:
        """The batches of an epoch: images [n, h, w, c] and labels int32 [n].

        A set that is the same in every epoch is prepared once and kept, if it fits a stack.
        """
        if self._kept is not None:
            yield from self._kept
            return
        made = []
        for ids in self.host.id_batches(epoch):
            made.append(self._rows(ids, epoch).prepared())
            yield made[-1]
            if not self._repeats:
                made.clear()
        if self._repeats:
            self._kept = made

    def stacks(self, epoch: int) -> Iterator[DeviceBatch]:
        """The batches of an epoch in groups of :attr:`stack_sizes`, in the same order.

        Yields:
            Images [s, n, h, w, c] and labels int32 [s, n]; where a group is one batch, as
            :meth:`batches` does.
        """
        for rows in self.rows(epoch):
            yield rows.prepared()

    def rows(self, epoch: int) -> Iterator[Rows]:
        """The stacks of an epoch before they are made, for a train step that makes them."""
        ready = self._next
        groups = ready[1] if ready is not None and ready[0] == epoch else self._grouped(epoch)
        for ids in groups:
            yield self._rows(ids, epoch)
        # whoever took the last rows has the device at work: those of the next cost nothing now
        self._next = (epoch + 1, [jnp.asarray(ids, jnp.int32) for ids in self._grouped(epoch + 1)])

    def blank(self, steps: int, size: int) -> Rows:
        """So many batches of the first sample alone, to compile with.

        Args:
            steps: Batches; 1: a single one, without a leading axis.
            size: Samples of each.
        """
        return self._rows(np.zeros((steps, size) if steps > 1 else size, np.int64), 0)

    def warm_up(self) -> None:
        """Place the samples and compile what makes the batches."""
        for shape in {ids.shape for ids in self._grouped(0)}:
            jax.block_until_ready(self._rows(np.zeros(shape, np.int64), 0).prepared())

    def close(self) -> None:
        """End the host loader's threads."""
        self.host.close()

    @cached_property
    def _data(self) -> DeviceData:
        return self.pipeline.place()

    @cached_property
    def _repeats(self) -> bool:
        """Whether every epoch is the same, and small enough to keep."""
        pixels = len(self.dataset) * int(np.prod(self.image_shape))
        fits = pixels * self.preparation.dtype.itemsize <= self.stack_bytes
        return fits and not self.host.shuffle and not self.pipeline.draws

    def _rows(self, ids: np.ndarray | jax.Array, epoch: int) -> Rows:
        return Rows(self.pipeline, self._data, jnp.asarray(ids, jnp.int32), epoch)

    def _grouped(self, epoch: int) -> Iterator[np.ndarray]:
        """The sample ids of every stack."""
        ids = iter(self.host.id_batches(epoch))
        for size in self.stack_sizes:
            group = list(islice(ids, size))
            yield np.stack(group) if size > 1 else group[0]
