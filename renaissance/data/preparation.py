"""What all engines share: how samples become batches, and what a loader asks of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from renaissance.core.errors import check_int
from renaissance.data.chain import ImageShape
from renaissance.data.dataset import ArrayDataset
from renaissance.data.encoded import EncodedDataset
from renaissance.data.native import processors
from renaissance.data.normalization import Normalization
from renaissance.data.transforms import Transform

Dataset = ArrayDataset | EncodedDataset


@dataclass(frozen=True, slots=True)
class Preparation:
    """How samples become batches.

    Attributes:
        transforms: Applied in order.
        normalization: Ends the chain.
        dtype: float32 or float16 of the images.
        out_channels: Channels of the images; None: the data set's. Added ones are 0.
        seed: 64-bit seed of every random decision.
        workers: Threads that prepare samples; None: one per processor.
        load_workers: Threads that read ahead, for data sets on disk.
        cpu_binding: Bind the workers to processors in turn.
        tolerant: Replace a damaged sample by the next good one instead of raising.
        backend: "auto", "native", "numpy" or "picture".
        delay_microseconds: For tests: the most that workers pause before a sample.
    """

    transforms: tuple[Transform, ...] = ()
    normalization: Normalization = field(default_factory=Normalization)
    dtype: np.dtype = np.dtype(np.float32)
    out_channels: int | None = None
    seed: int = 0
    workers: int | None = None
    load_workers: int = 1
    cpu_binding: bool = False
    tolerant: bool = False
    backend: str = "auto"
    delay_microseconds: int = 0

    def worker_count(self) -> int:
        """The number of workers."""
        return len(processors()) if self.workers is None else self.workers

    def bind_to(self) -> tuple[int, ...]:
        """The processors to bind to; empty: none."""
        return processors() if self.cpu_binding else ()


class Engine(Protocol):
    """What a loader needs."""

    after: ImageShape

    def announce(self, ids: np.ndarray) -> None:
        """These samples come next: a data set on disk begins to read them."""

    def fill(self, ids: np.ndarray, epoch: int, out: np.ndarray, out_labels: np.ndarray) -> None:
        """Prepare a batch into ``out`` [count, h, w, c] and ``out_labels`` [count]."""

    def close(self) -> None:
        """End all threads."""


def widened(shape: ImageShape, out_channels: int | None) -> ImageShape:
    """The shape with the channels asked for."""
    h, w, c = shape
    if out_channels is None:
        return shape
    return h, w, check_int("channels", out_channels, c)
