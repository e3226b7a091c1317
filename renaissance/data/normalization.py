"""Normalisation: uint8 to float through one table of 256 entries per channel.

``y = (x / 255 - mean) / std``, written as ``x * scale + bias``. A pixel has 256 values, so a table
makes every implementation (numpy, scalar, vector, device) give identical bits. For float32 its
entries are fused multiply-adds of float32, which vector code can follow exactly (they lie within
2e-7 of the largest value from the exact ones); for float16 the exact values, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from renaissance.core.errors import check_real, fail


@dataclass(frozen=True, slots=True)
class Normalization:
    """Mean and standard deviation per channel, of pixels in [0, 1].

    One value serves any number of channels. Padded channels and erased pixels become exactly 0.

    Attributes:
        mean: One value, or one per channel.
        std: One value, or one per channel, each > 0.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for field in ("mean", "std"):
            given = getattr(self, field)
            values = tuple(given) if isinstance(given, Sequence) else (given,)
            if not values:
                fail(ValueError, field, given, "at least one value")
            low = 0.0 if field == "std" else float("-inf")
            checked = tuple(check_real(field, v, low, open_low=True) for v in values)
            object.__setattr__(self, field, checked)

    def table(self, channels: int, dtype: np.dtype | type | str = np.float32) -> np.ndarray:
        """The 256 values of every channel.

        Args:
            channels: Of the pictures.
            dtype: float32 or float16 of the result.

        Returns:
            ``[channels, 256]`` of ``dtype``.

        Raises:
            ValueError: Neither one value nor one per channel.
        """
        scale, bias = self.affine(channels)
        kind = check_float(dtype)
        levels = np.arange(256, dtype=np.float64)[None, :]
        if kind == np.float32:
            # what one fused multiply-add of float32 gives: the product is exact in float64
            scale, bias = (part.astype(np.float32).astype(np.float64) for part in (scale, bias))
        return (levels * scale[:, None] + bias[:, None]).astype(kind)

    def affine(self, channels: int) -> tuple[np.ndarray, np.ndarray]:
        """Scale and bias per channel, float64 ``[channels]``: ``y = x * scale + bias``.

        Raises:
            ValueError: Neither one value nor one per channel.
        """
        columns = []
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                fail(ValueError, f"normalization {name}", values, f"1 or {channels} values")
            columns.append(np.broadcast_to(np.array(values, np.float64), (channels,)))
        mean, std = columns
        return 1.0 / (255.0 * std), -mean / std


MNIST = Normalization((0.1307,), (0.3081,))
CIFAR = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MLPERF = Normalization((123.68 / 255, 116.78 / 255, 103.94 / 255), (1 / 255,) * 3)
NO_NORM = Normalization()

PRESETS: dict[str, Normalization] = {
    "MNIST": MNIST,
    "CIFAR": CIFAR,
    "IMAGENET": IMAGENET,
    "MLPERF": MLPERF,
    "NO_NORM": NO_NORM,
}


def normalization_of(value: Normalization | str | None) -> Normalization:
    """A record from itself, a preset's name, or None (NO_NORM: pixels in [0, 1])."""
    if value is None:
        return NO_NORM
    if isinstance(value, Normalization):
        return value
    if isinstance(value, str) and value.upper() in PRESETS:
        return PRESETS[value.upper()]
    return fail(ValueError, "normalization", value, f"a Normalization or one of {list(PRESETS)}")


def check_float(dtype: np.dtype | type | str) -> np.dtype:
    """float32 or float16, or an error."""
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float16)):
        fail(ValueError, "dtype", str(kind), "float32 or float16")
    return kind
