"""Progressive resolution: training pictures made smaller for the first epochs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core import philox
from renaissance.task.options import Progression

# Operation word of the crop's random draws, apart from those of layers and transforms.
_CROP_OPERATION = 0x50_43_52_50


def shrink(
    images: Any, side: int, how: Progression, *, seed: int, epoch: int, batch: int
) -> jax.Array:
    """Pictures of ``side`` x ``side`` pixels.

    Args:
        images: (N, H, W, C), H and W at least ``side``.
        side: Pixels.
        how: ``CROP`` takes a random window of each picture, ``RESIZE`` the whole picture
            (bilinear, antialiased).
        seed: Seed of the windows.
        epoch: Counted from 0.
        batch: Index of the batch in its epoch.

    Returns:
        (N, side, side, C) of the images' dtype. A pure function of its arguments.
    """
    x = jnp.asarray(images)
    if how is Progression.RESIZE:
        return _resize(x, side)
    return _crop(x, window_corners(x.shape, side, seed=seed, epoch=epoch, batch=batch), side)


def window_corners(
    shape: tuple[int, ...], side: int, *, seed: int, epoch: int, batch: int
) -> np.ndarray:
    """Upper left corner of each picture's window, int32 (N, 2)."""
    count, height, width, _ = shape
    draws = philox.uniform(
        seed, 2 * count, sample=batch, operation=_CROP_OPERATION, step=epoch
    ).reshape(count, 2)
    places = np.array([height - side + 1, width - side + 1])
    return np.minimum((draws * places).astype(np.int32), places - 1).astype(np.int32)


@partial(jax.jit, static_argnums=1)
def _resize(images: jax.Array, side: int) -> jax.Array:
    count, _, _, channels = images.shape
    wide = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    small = jax.image.resize(wide, (count, side, side, channels), "bilinear", antialias=True)
    return small.astype(images.dtype)


@partial(jax.jit, static_argnums=2)
def _crop(images: jax.Array, corners: jax.Array, side: int) -> jax.Array:
    def window(image: jax.Array, corner: jax.Array) -> jax.Array:
        size = (side, side, image.shape[2])
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), size)

    return jax.vmap(window)(images, corners)
