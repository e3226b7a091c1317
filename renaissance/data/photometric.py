"""Transforms of colours and values, as frozen records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from renaissance.core.errors import check_int, check_real, fail
from renaissance.data.transforms import Range, Transform, check_range


@dataclass(frozen=True, slots=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue, in a random order.

    Factors are uniform in [max(0, 1 - x), 1 + x]. Brightness mixes with black, contrast with the
    mean grey, saturation with the grey picture. Hue turns the colour circle by a share in [-x, x].
    Grey pictures keep to brightness and contrast.

    Attributes:
        brightness: Half-width of the factor's range, 0: unchanged.
        contrast: Likewise.
        saturation: Likewise.
        hue: Most of the turn, 0 to 0.5 of a full turn.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            self._set(name, check_real(f"ColorJitter {name}", getattr(self, name), 0.0, 100.0))
        self._set("hue", check_real("ColorJitter hue", self.hue, 0.0, 0.5))


@dataclass(frozen=True, slots=True)
class RandomGrayscale(Transform):
    """Replace the colours by their grey (0.299 R + 0.587 G + 0.114 B); the channel count stays.

    Attributes:
        p: Probability.
    """

    p: float = 0.1

    def __post_init__(self) -> None:
        self._set("p", check_real("RandomGrayscale p", self.p, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class RandomAutocontrast(Transform):
    """Stretch each channel so that its darkest value is 0 and its brightest 255.

    Attributes:
        p: Probability.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set("p", check_real("RandomAutocontrast p", self.p, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class GaussianBlur(Transform):
    """Convolve with a Gaussian whose width is drawn per picture; borders are reflected.

    Attributes:
        kernel: Taps, odd.
        sigma: Range (from, to) of the standard deviation in pixels, or one number.
    """

    kernel: int = 3
    sigma: float | Range = (0.1, 2.0)

    def __post_init__(self) -> None:
        if check_int("GaussianBlur kernel", self.kernel, 1, 255) % 2 == 0:
            fail(ValueError, "GaussianBlur kernel", self.kernel, "an odd number")
        pair = self.sigma if isinstance(self.sigma, Sequence) else (self.sigma, self.sigma)
        self._set("sigma", check_range("GaussianBlur sigma", pair, 0.0, 1000.0, open_low=True))


@dataclass(frozen=True, slots=True)
class GaussianNoise(Transform):
    """Add independent normal noise to every value.

    Attributes:
        mean: Of the noise, in units of the full range (1.0 is 255).
        sigma: Standard deviation, likewise.
    """

    mean: float = 0.0
    sigma: float = 0.1

    def __post_init__(self) -> None:
        self._set("mean", check_real("GaussianNoise mean", self.mean, -1.0, 1.0))
        self._set("sigma", check_real("GaussianNoise sigma", self.sigma, 0.0, 10.0))
