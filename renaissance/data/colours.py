"""What the colour transforms do to one picture."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np

from renaissance.core.philox import normal
from renaissance.data import codec
from renaissance.data.draws import Draw, bounded
from renaissance.data.photometric import ColorJitter, GaussianBlur, GaussianNoise


def grey(image: np.ndarray) -> np.ndarray:
    """ITU-R 601 luma in 1/65536, rounded: uint8 [h, w]."""
    r, g, b = (image[..., k].astype(np.uint32) for k in range(3))
    return ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16).astype(np.uint8)


def lookup(image: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Replace every value by an entry of a table of 256, rounded and clipped."""
    return np.rint(np.clip(levels, 0, 255)).astype(np.uint8)[image]


def jitter(transform: ColorJitter, image: np.ndarray, draw: Draw) -> np.ndarray:
    """Brightness, contrast, saturation and hue in a random order."""
    widths = (transform.brightness, transform.contrast, transform.saturation)
    shares = draw.uniforms(0)
    factors = []
    for x, u in zip(widths, shares[:3], strict=True):
        low = max(0.0, 1.0 - x)
        factors.append(low + (1.0 + x - low) * u)
    order = list(permutations(range(4)))[bounded(draw.block(1)[0], 24)]
    levels = np.arange(256, dtype=np.float64)
    for step in order:
        if step == 0 and transform.brightness:
            image = lookup(image, levels * factors[0])
        elif step == 1 and transform.contrast:
            plain = grey(image) if image.shape[2] == 3 else image
            mean = math.floor(float(plain.mean()) + 0.5)
            image = lookup(image, levels * factors[1] + mean * (1 - factors[1]))
        elif step == 2 and transform.saturation and image.shape[2] == 3:
            mixed = image * np.float32(factors[2])
            mixed += grey(image)[..., None] * np.float32(1 - factors[2])
            image = np.rint(np.clip(mixed, 0, 255)).astype(np.uint8)
        elif step == 3 and transform.hue and image.shape[2] == 3:
            image = turn_hue(image, transform.hue * (2 * shares[3] - 1))
    return image


def turn_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Turn the colour circle by a share of a full turn, in steps of 1/256."""
    cv2 = codec.opencv("turning hues")
    hsv = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2HSV_FULL)
    hsv[..., 0] += np.uint8(round(turn * 256) % 256)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def autocontrast(image: np.ndarray) -> np.ndarray:
    """Stretch every channel to 0..255; a channel of one value stays."""
    result = image.copy()
    levels = np.arange(256, dtype=np.float64)
    for k in range(image.shape[2]):
        low, high = int(image[..., k].min()), int(image[..., k].max())
        if high > low:
            result[..., k] = lookup(image[..., k], (levels - low) * (255 / (high - low)))
    return result


def blur(transform: GaussianBlur, image: np.ndarray, draw: Draw) -> np.ndarray:
    """Convolve with a Gaussian."""
    cv2 = codec.opencv("blurring pictures")
    low, high = transform.sigma  # type: ignore[misc]
    sigma = low + (high - low) * draw.uniforms()[0]
    kernel = (transform.kernel, transform.kernel)
    blurred = cv2.GaussianBlur(
        np.ascontiguousarray(image), kernel, sigma, borderType=cv2.BORDER_REFLECT_101
    )
    return blurred.reshape(image.shape)


def noise(transform: GaussianNoise, image: np.ndarray, draw: Draw) -> np.ndarray:
    """Add normal noise."""
    place = {"sample": draw.sample, "operation": draw.operation, "step": draw.epoch}
    drawn = normal(draw.seed, image.size, **place).reshape(image.shape)
    noisy = image + 255 * (transform.mean + transform.sigma * drawn)
    return np.rint(np.clip(noisy, 0, 255)).astype(np.uint8)
