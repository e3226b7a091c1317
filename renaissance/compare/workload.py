"""Workload: what every contestant has to do. Plain data, so that it can cross a process border."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from renaissance import models
from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW, Optimizer
from renaissance.core.errors import check_int, fail
from renaissance.graph.blueprint import BluePrint

OPTIMIZERS: dict[str, Optimizer] = {
    "momentum": SGD(momentum=0.9, weight_decay=1e-4),
    "nesterov": SGD(momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": Adam(weight_decay=1e-4),
    "adamw": AdamW(weight_decay=1e-2),
    "lars": LARS(weight_decay=1e-4),
}
LEARNING_RATE = 1e-3
WITH_DROPOUT = ("vgg16_bn", "mobilenet_v2")


@dataclass(frozen=True)
class Workload:
    """A training step and how often to time it.

    Attributes:
        net: Name in :mod:`renaissance.models`.
        batch: Rows of a batch.
        height: Of an image.
        width: Of an image.
        channels: Of an image.
        classes: Number of classes.
        optimizer: Key of :data:`OPTIMIZERS`.
        amp: Mixed precision.
        steps: Steps of one timed repeat.
        repeats: Timed repeats; the median counts.
        seed: Of weights and images.
    """

    net: str
    batch: int
    height: int
    width: int
    channels: int
    classes: int
    optimizer: str = "nesterov"
    amp: bool = True
    steps: int = 20
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "height", "width", "channels", "classes", "steps", "repeats"):
            check_int(name, getattr(self, name), 1)
        if self.optimizer not in OPTIMIZERS:
            fail(ValueError, "optimizer", self.optimizer, f"one of {', '.join(OPTIMIZERS)}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of an image."""
        return self.height, self.width, self.channels

    @property
    def image_dtype(self) -> np.dtype:
        """Images lie on the device in the compute type."""
        return np.dtype(np.float16 if self.amp else np.float32)

    def blueprint(self) -> BluePrint:
        """The model, without dropout: nobody draws the same masks, and gradients must agree."""
        kwargs = {"drop": 0.0} if self.net in WITH_DROPOUT else {}
        return models.by_name(self.net, num_classes=self.classes, **kwargs)

    def compile_options(self) -> dict[str, Any]:
        """Arguments of :func:`renaissance.compile` beside the model."""
        return {
            "input_shape": self.shape,
            "batch_size": self.batch,
            "optimizer": OPTIMIZERS[self.optimizer],
            "amp": self.amp,
        }

    def batch_of(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The batch of a step: normal images, uniform labels."""
        rng = np.random.default_rng((self.seed, index))
        images = rng.standard_normal((self.batch, *self.shape), np.float32)
        labels = rng.integers(0, self.classes, self.batch).astype(np.int32)
        return images.astype(self.image_dtype), labels

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """Inverse of :meth:`to_json`."""
        return cls(**json.loads(text))
