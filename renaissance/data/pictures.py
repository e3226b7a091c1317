"""Transforms on one picture at a time, of any size, with OpenCV where it does the work well."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from renaissance.data import codec
from renaissance.data.chain import (
    CROP,
    ERASE,
    FLIP,
    PAD,
    ROTATE,
    SCALE,
    WINDOW,
    ImageShape,
    Operation,
    finish_length,
    is_geometric,
    lower,
)
from renaissance.data.colours import autocontrast, blur, grey, jitter, noise
from renaissance.data.draws import Draw, bounded, choose_rectangle, entry_of
from renaissance.data.photometric import (
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    RandomAutocontrast,
    RandomGrayscale,
)
from renaissance.data.transforms import (
    PAD_MODES,
    DoNothing,
    FastRandomResizedCrop,
    RandomErasing,
    RandomResizedCrop,
    RandomRotation,
    RandomScale,
    Resize,
    Transform,
    check_chain,
)

NEEDS_OPENCV = (Resize, RandomResizedCrop, GaussianBlur, RandomRotation, RandomScale, ColorJitter)
Box = tuple[int, int, int, int]
NO_BOX: Box = (0, 0, 0, 0)


class PictureChain:
    """A chain of any transforms, applied to one sample at a time."""

    def __init__(self, transforms: Sequence[Transform], channels: int) -> None:
        """Check a chain.

        Args:
            transforms: Records.
            channels: Of the pictures; no transform changes it.

        Raises:
            ImportError: OpenCV is missing and a transform needs it.
        """
        self.transforms = check_chain(transforms)
        self.channels = channels
        self._body = len(self.transforms) - finish_length(self.transforms)
        for transform in self.transforms:
            if isinstance(transform, NEEDS_OPENCV):
                codec.opencv(type(transform).__name__)

    def run_encoded(self, data: bytes, draw: Draw) -> tuple[np.ndarray, bool, Box]:
        """Decode and transform; see :meth:`run`."""
        first = self.transforms[0] if self.transforms else None
        if isinstance(first, FastRandomResizedCrop) and data[:2] == codec.JPEG_MAGIC:
            image = decode_window(first, data, self.channels, draw.at(0))
            return self.run(image, draw, 1)
        return self.run(codec.decode(data, self.channels), draw)

    def run(self, image: np.ndarray, draw: Draw, position: int = 0) -> tuple[np.ndarray, bool, Box]:
        """Transform a picture.

        Args:
            image: uint8 [h, w, c].
            draw: The sample's random numbers.
            position: The first transform to apply.

        Returns:
            uint8 [h', w', c] and what is left to the normalisation: whether to flip, and the
            rectangle (top, left, height, width) to blank after that, height 0: none.
        """
        for place in range(position, self._body):
            image = apply(self.transforms[place], image, draw.at(place), place)
        flipped, box = False, NO_BOX
        for place in range(self._body, len(self.transforms)):
            transform = self.transforms[place]
            if isinstance(transform, DoNothing):
                continue
            op = lower(transform, shape_of(image), place, True)
            if op.kind == ERASE:
                box = choose_rectangle(op, draw.at(place)) or NO_BOX
            elif happens(draw.at(place), transform.p):  # type: ignore[attr-defined]
                flipped = not flipped
                box = (box[0], image.shape[1] - box[1] - box[3], box[2], box[3])
        return image, flipped, box if box[2] else NO_BOX


def shape_of(image: np.ndarray) -> ImageShape:
    """Height, width and channels as a plain tuple."""
    h, w, c = image.shape
    return h, w, c


def happens(draw: Draw, p: float) -> bool:
    """A choice with probability p."""
    return draw.uniforms()[0] < p


def apply(transform: Transform, image: np.ndarray, draw: Draw, position: int) -> np.ndarray:
    """One transform on one picture."""
    if is_geometric(transform):
        assert not isinstance(transform, RandomErasing)
        return apply_geometric(lower(transform, shape_of(image), position), image, draw)
    match transform:
        case RandomResizedCrop():  # the fast one too, where no JPEG is at hand
            top, left, height, width = choose_window(
                transform, image.shape[0], image.shape[1], draw
            )
            return resize(image[top : top + height, left : left + width], transform.size)
        case Resize():
            return resize(image, resized_size(transform, image.shape), transform.interpolation)
        case ColorJitter():
            return jitter(transform, image, draw)
        case RandomGrayscale():
            if image.shape[2] != 3 or not happens(draw, transform.p):
                return image
            return np.repeat(grey(image)[..., None], 3, axis=2)
        case RandomAutocontrast():
            return autocontrast(image) if happens(draw, transform.p) else image
        case GaussianBlur():
            return blur(transform, image, draw)
        case GaussianNoise():
            return noise(transform, image, draw)
    raise TypeError(f"no implementation for {transform!r}")


def apply_geometric(op: Operation, image: np.ndarray, draw: Draw) -> np.ndarray:
    """One operation of a chain on one picture."""
    if op.kind == PAD:
        top, left, bottom, right, mode, fill = op.args
        more = {"constant_values": fill} if mode == 0 else {}
        sides = ((top, bottom), (left, right), (0, 0))
        return np.pad(image, sides, mode=PAD_MODES[mode], **more)  # type: ignore[call-overload]
    if op.kind == WINDOW:
        top, left, height, width = op.args
        return image[top : top + height, left : left + width]
    words = draw.block(0)
    if op.kind == CROP:
        height, width = op.args
        top = bounded(words[0], image.shape[0] - height + 1)
        left = bounded(words[1], image.shape[1] - width + 1)
        return image[top : top + height, left : left + width]
    if op.kind == FLIP:
        return image[:, ::-1] if (words[0] >> 8) < op.args[0] else image
    return warp(op, image, entry_of(words[0]))


def warp(op: Operation, image: np.ndarray, entry: int) -> np.ndarray:
    """Rotate or scale about the centre."""
    cv2 = codec.opencv("rotating pictures")
    h, w = image.shape[:2]
    if op.kind == ROTATE:
        cosine, sine = (float(v) / 65536 for v in op.table[2 * entry : 2 * entry + 2])
        turn = np.array([[cosine, -sine], [sine, cosine]])
    else:
        assert op.kind == SCALE
        turn = np.eye(2) * (float(op.table[entry]) / 65536)
    centre = np.array([(w - 1) / 2, (h - 1) / 2])
    matrix = np.concatenate((turn, (centre - turn @ centre)[:, None]), axis=1)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    fill = (float(op.args[0]),) * 4
    result = cv2.warpAffine(
        image, matrix, (w, h), flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=fill
    )
    return result.reshape(image.shape)


def resize(
    image: np.ndarray, size: tuple[int, int] | int, interpolation: str = "bilinear"
) -> np.ndarray:
    """Scale to (height, width)."""
    cv2 = codec.opencv("resizing pictures")
    height, width = size  # type: ignore[misc]
    h, w, c = image.shape
    if (h, w) == (height, width):
        return image
    if interpolation == "bilinear" and h >= 2 * height and w >= 2 * width:
        interpolation = "area"  # bilinear would skip pixels
    flag = {
        "nearest": cv2.INTER_NEAREST,
        "bilinear": cv2.INTER_LINEAR,
        "bicubic": cv2.INTER_CUBIC,
        "area": cv2.INTER_AREA,
    }[interpolation]
    return cv2.resize(image, (width, height), interpolation=flag).reshape(height, width, c)


def resized_size(transform: Resize, shape: Sequence[int]) -> tuple[int, int]:
    """Height and width after a Resize."""
    if isinstance(transform.size, tuple):
        return transform.size
    h, w = shape[:2]
    side = transform.size
    if h <= w:
        return side, max(1, int(side * w / h))
    return max(1, int(side * h / w)), side


def choose_window(transform: RandomResizedCrop, h: int, w: int, draw: Draw) -> Box:
    """Top, left, height and width of a random resized crop."""
    (low, high), (narrow, wide) = transform.scale, transform.ratio
    log_narrow, log_wide = math.log(narrow), math.log(wide)
    for attempt in range(10):
        u_area, u_ratio, _, _ = draw.uniforms(attempt)
        area = h * w * (low + (high - low) * u_area)
        ratio = math.exp(log_narrow + (log_wide - log_narrow) * u_ratio)
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= w and 0 < height <= h:
            _, _, down, across = draw.block(attempt)
            top, left = bounded(down, h - height + 1), bounded(across, w - width + 1)
            return top, left, height, width
    height, width = h, w
    if w / h < narrow:
        height = max(1, round(w / narrow))
    elif w / h > wide:
        width = max(1, round(h * wide))
    return (h - height) // 2, (w - width) // 2, height, width


def decode_window(
    transform: FastRandomResizedCrop, data: bytes, channels: int, draw: Draw
) -> np.ndarray:
    """A random resized crop of a JPEG, decoded no larger than needed."""
    h, w = codec.image_size(data)
    top, left, height, width = choose_window(transform, h, w, draw)
    out_h, out_w = transform.size  # type: ignore[misc]
    factor = next((f for f in (8, 4, 2) if height >= f * out_h and width >= f * out_w), 1)
    least = (-(-h // factor), -(-w // factor)) if factor > 1 else (0, 0)
    image = codec.decode(data, channels, least=least, fast=True)
    if factor > 1:
        # the decoder rounds its sizes up; the window goes to the nearest reduced pixels
        top, left = round(top * image.shape[0] / h), round(left * image.shape[1] / w)
        height = min(max(1, round(height * image.shape[0] / h)), image.shape[0] - top)
        width = min(max(1, round(width * image.shape[1] / w)), image.shape[1] - left)
    return resize(image[top : top + height, left : left + width], (out_h, out_w))


def output_shape(
    transforms: Sequence[Transform], shape: ImageShape | None, channels: int
) -> ImageShape:
    """Shape after a chain; ``shape`` is None where the pictures' sizes differ.

    Raises:
        ShapeError: A crop does not fit.
        ValueError: The pictures differ and no transform gives them one size.
    """
    for position, transform in enumerate(transforms):
        if isinstance(transform, RandomResizedCrop):
            shape = (*transform.size, channels)  # type: ignore[misc]
        elif isinstance(transform, Resize):
            if isinstance(transform.size, tuple):
                shape = (*transform.size, channels)
            elif shape is not None:
                shape = (*resized_size(transform, shape), channels)
        elif shape is not None and is_geometric(transform):
            shape = lower(transform, shape, position).after
        elif shape is None and type(transform).__name__ in ("CenterCrop", "RandomCrop"):
            shape = (*transform.size, channels)  # type: ignore[attr-defined]
    if shape is None:
        raise ValueError(
            f"pictures of different sizes stay so under {tuple(transforms)}; end with a crop or "
            "add a Resize((height, width)) or RandomResizedCrop"
        )
    return shape
