"""Transforms as frozen records: what they do. How is said in chain, array_ops and pictures.

The parameters of a random transform come from Philox by (seed, epoch, sample id, position in the
chain) alone, so a sample is the same whoever prepares it and whenever. The geometric ones take one
of 4096 evenly spaced values of a range, which makes them exact integers on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from renaissance.core.errors import check_int, check_real, fail

Size = tuple[int, int]
Range = tuple[float, float]

PAD_MODES = ("constant", "edge", "reflect", "symmetric")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area")


class Transform:
    """Base of all transforms: uint8 pictures in, uint8 pictures out."""

    __slots__ = ()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def check_size(name: str, value: Any) -> Size:
    """A side in pixels, or (height, width), as (height, width)."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            fail(ValueError, name, value, "a side in pixels or (height, width)")
        return check_int(f"{name} height", value[0], 1), check_int(f"{name} width", value[1], 1)
    side = check_int(name, value, 1)
    return side, side


def check_range(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> Range:
    """A pair (from, to) inside [low, high]."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        fail(TypeError, name, value, "a pair (from, to)")
    first = check_real(f"{name} from", value[0], low, high, open_low=open_low)
    last = check_real(f"{name} to", value[1], low, high, open_low=open_low)
    if first > last:
        fail(ValueError, name, value, "from <= to")
    return first, last


@dataclass(frozen=True, slots=True)
class DoNothing(Transform):
    """Leaves the picture as it is."""


@dataclass(frozen=True, slots=True)
class Resize(Transform):
    """Scale to a size.

    Attributes:
        size: ``(height, width)``, or one number: the shorter side, keeping the proportions (the
            longer side is truncated to whole pixels).
        interpolation: "bilinear" (anti-aliased by "area" when shrinking at least twofold),
            "nearest", "bicubic" or "area".
    """

    size: int | Size
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        pair = check_size("Resize size", self.size)
        self._set("size", pair if isinstance(self.size, Sequence) else pair[0])
        if self.interpolation not in INTERPOLATIONS:
            fail(ValueError, "Resize interpolation", self.interpolation, f"one of {INTERPOLATIONS}")


@dataclass(frozen=True, slots=True)
class CenterCrop(Transform):
    """The middle of the picture: top = (h - height) // 2, likewise left.

    Attributes:
        size: A side, or (height, width); at most the picture's.
    """

    size: int | Size

    def __post_init__(self) -> None:
        self._set("size", check_size("CenterCrop size", self.size))


@dataclass(frozen=True, slots=True)
class RandomCrop(Transform):
    """A window of a size at a random place.

    Attributes:
        size: A side, or (height, width); at most the picture's.
    """

    size: int | Size

    def __post_init__(self) -> None:
        self._set("size", check_size("RandomCrop size", self.size))


@dataclass(frozen=True, slots=True)
class Pad(Transform):
    """Borders around the picture.

    Attributes:
        padding: Pixels on every side, or (left, top, right, bottom).
        mode: "constant", "edge" (repeat the border), "reflect" (mirror without it) or "symmetric"
            (mirror with it).
        fill: Value of constant borders, 0 to 255.
    """

    padding: int | tuple[int, int, int, int]
    mode: str = "constant"
    fill: int = 0

    def __post_init__(self) -> None:
        sides: Any = self.padding if isinstance(self.padding, Sequence) else (self.padding,) * 4
        if isinstance(sides, str) or len(sides) != 4:
            fail(ValueError, "Pad padding", self.padding, "a number or (left, top, right, bottom)")
        self._set("padding", tuple(check_int("Pad padding", side, 0, 1024) for side in sides))
        if self.mode not in PAD_MODES:
            fail(ValueError, "Pad mode", self.mode, f"one of {PAD_MODES}")
        check_int("Pad fill", self.fill, 0, 255)


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Transform):
    """A window of random area and proportions, scaled to a size (GoogLeNet, arXiv:1409.4842).

    Ten tries to place a window of area ``scale`` times the picture's and of log-uniform ``ratio``
    (width / height); if none fits, the largest central window with the nearest ratio.

    Attributes:
        size: A side, or (height, width), of the result.
        scale: Range of the area, as a share of the picture's.
        ratio: Range of width / height.
    """

    size: int | Size
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        name = type(self).__name__
        self._set("size", check_size(f"{name} size", self.size))
        self._set("scale", check_range(f"{name} scale", self.scale, 0.0, 1.0, open_low=True))
        self._set("ratio", check_range(f"{name} ratio", self.ratio, 1 / 16, 16.0))


@dataclass(frozen=True, slots=True)
class FastRandomResizedCrop(RandomResizedCrop):
    """The same windows, decoded at a reduced scale of the JPEG where they are larger than needed.

    Scales 1/2, 1/4 and 1/8 cost the decoder less; the smallest that still has as many pixels as the
    result is taken. Pictures that are not JPEGs, or were decoded before, go the plain way. Only the
    first transform of a chain can use the reduced scale.
    """


@dataclass(frozen=True, slots=True)
class RandomHorizontalFlip(Transform):
    """Mirror left to right.

    Attributes:
        p: Probability.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set("p", check_real("RandomHorizontalFlip p", self.p, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class RandomRotation(Transform):
    """Rotate about the centre by bilinear interpolation; the size stays.

    Attributes:
        degrees: Range (from, to), counter-clockwise, or one number d for (-d, d).
        fill: Value of what comes in from outside.
    """

    degrees: float | Range
    fill: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.degrees, Sequence):
            span = check_range("RandomRotation degrees", self.degrees, -360.0, 360.0)
        else:
            most = check_real("RandomRotation degrees", self.degrees, 0.0, 360.0)
            span = (-most, most)
        self._set("degrees", span)
        check_int("RandomRotation fill", self.fill, 0, 255)


@dataclass(frozen=True, slots=True)
class RandomScale(Transform):
    """Enlarge or shrink about the centre by bilinear interpolation; the size of the frame stays.

    Attributes:
        low: Smallest factor, at least 1/16.
        high: Largest factor.
        fill: Value of what comes in from outside.
    """

    low: float = 0.8
    high: float = 1.2
    fill: int = 0

    def __post_init__(self) -> None:
        pair = check_range("RandomScale factors", (self.low, self.high), 1 / 16, 1024.0)
        self._set("low", pair[0])
        self._set("high", pair[1])
        check_int("RandomScale fill", self.fill, 0, 255)


@dataclass(frozen=True, slots=True)
class RandomErasing(Transform):
    """Blank a random rectangle (arXiv:1708.04896): its pixels are 0 after the normalisation.

    Stands at the end of a chain, where only flips may follow. Ten tries for a rectangle of area
    ``scale`` times the picture's and log-uniform ``ratio`` (height / width) that is smaller than
    the picture; if none fits, nothing is erased.

    Attributes:
        p: Probability.
        scale: Range of the area, as a share of the picture's.
        ratio: Range of height / width.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)

    def __post_init__(self) -> None:
        self._set("p", check_real("RandomErasing p", self.p, 0.0, 1.0))
        self._set("scale", check_range("RandomErasing scale", self.scale, 0.0, 1.0, open_low=True))
        self._set("ratio", check_range("RandomErasing ratio", self.ratio, 1 / 16, 16.0))


def check_chain(transforms: Any) -> tuple[Transform, ...]:
    """The transforms as a tuple.

    Raises:
        TypeError: One is no transform (a class instead of a record gets a hint).
        ValueError: RandomErasing is not at the end, or there are several.
    """
    if isinstance(transforms, Transform):
        transforms = (transforms,)
    chain = tuple(transforms or ())
    for position, transform in enumerate(chain):
        if not isinstance(transform, Transform):
            hint = f"{transform.__name__}(...)" if isinstance(transform, type) else "a transform"
            fail(TypeError, f"transform {position}", transform, hint)
    erasing = [i for i, t in enumerate(chain) if isinstance(t, RandomErasing)]
    if len(erasing) > 1:
        fail(ValueError, "transforms", chain, "at most one RandomErasing")
    for later in chain[erasing[0] + 1 :] if erasing else ():
        if not isinstance(later, (RandomHorizontalFlip, DoNothing)):
            raise ValueError(
                f"{type(later).__name__} follows RandomErasing, which blanks pixels after the "
                "normalisation: it must stand at the end, where only flips may follow"
            )
    return chain
