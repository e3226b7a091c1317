"""Where batches are made: by the host's workers, or on the device from samples that stay there.

What the host's workers make for a GPU travels there ahead of the steps that use it.
"""

from __future__ import annotations

from typing import Any

from renaissance.core.errors import fail
from renaissance.data.device_loader import STACK_BYTES, DeviceLoader
from renaissance.data.loader import Loader
from renaissance.data.transferred import TransferredLoader
from renaissance.task.options import TrainingOptions
from renaissance.task.source import BatchSource

# Samples take at most this share of the device's memory, or so many bytes where it does not say.
SHARE = 8
UNKNOWN_LIMIT = 1 << 30


def place(
    train: BatchSource | None, val: BatchSource | None, options: TrainingOptions, device: Any
) -> tuple[BatchSource | None, BatchSource | None]:
    """The sources a run takes its batches from.

    Args:
        train: Training batches as given; only a :class:`renaissance.data.Loader` can move.
        val: Validation batches, likewise.
        options: For the pipeline asked for.
        device: Where the run happens.

    Raises:
        TypeError: The device's pipeline is asked for, and a transform is not geometric or the
            samples are encoded.
        ValueError: It is asked for, and the source is not a loader.
    """
    if train is None:
        return train, val
    if options.pipeline == "host":
        return _sent(train, device), _sent(val, device)
    # The CPU backend runs loops with convolutions far slower than the steps one by one. Pictures
    # that shrink batch by batch cannot come in stacks.
    single = device.platform == "cpu" or options.progressive is not None
    how = {"stack_bytes": 0 if single else STACK_BYTES}
    if options.pipeline == "device":
        return _moved(train, how), None if val is None else _moved(val, how)
    if device.platform == "cpu":
        return train, val
    limit = _limit(device)
    moved = (_moved_if_possible(source, limit, how) for source in (train, val))
    train, val = (_sent(source, device) for source in moved)
    return train, val


def _sent(source: Any, device: Any) -> Any:
    """A host's loader whose batches travel to a GPU by themselves; anything else as it is."""
    if device.platform != "gpu" or not isinstance(source, Loader):
        return source
    return TransferredLoader(source, device)


def _moved(source: BatchSource, how: dict[str, int]) -> BatchSource:
    if isinstance(source, DeviceLoader):
        return source
    if not isinstance(source, Loader):
        expected = "a loader of rn.data.loader(...), or pipeline('host')"
        fail(ValueError, "source for the device's pipeline", type(source).__name__, expected)
    return DeviceLoader(source, **how)


def _moved_if_possible(source: Any, limit: int, how: dict[str, int]) -> Any:
    if not isinstance(source, Loader) or source.preparation.tolerant:
        return source
    images = getattr(source.dataset, "images", None)
    if images is None or images.nbytes > limit:
        return source
    try:
        return DeviceLoader(source, **how)
    except TypeError:  # a transform that only the host has
        return source


def _limit(device: Any) -> int:
    stats = device.memory_stats() or {}
    total = stats.get("bytes_limit")
    return UNKNOWN_LIMIT if total is None else int(total) // SHARE
