"""The operations of a chain on whole batches of arrays, with numpy or jax.numpy.

Every function takes the array namespace ``xp``. All arithmetic is in 32-bit integers (jax has no
wider ones unless asked), so both namespaces give the same bits as the native workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from renaissance.data.chain import (
    CROP,
    ENTRIES,
    ERASE,
    FLIP,
    PAD,
    ROTATE,
    SCALE,
    WINDOW,
    Chain,
    Operation,
)
from renaissance.data.transforms import PAD_MODES

Array = Any
Words = tuple[Array, Array, Array, Array]
Draw = Callable[[int, int], Words]
"""``draw(operation, block)`` gives four words per sample, uint32 [n] each."""

Settle = Callable[[Any], Any]
UpperHalf = Callable[[Array, Array], Array]


class Finish(NamedTuple):
    """What the normalisation still has to do, per sample; None where a chain has no such transform.

    Attributes:
        flip: bool [n].
        rectangle: (top, left, height, width), int32 [n] each; height 0: nothing is erased.
    """

    flip: Array | None
    rectangle: tuple[Array, Array, Array, Array] | None


def draws(
    xp: Any,
    chain: Chain,
    seed: tuple[Array, Array],
    samples: Array,
    epoch: Array,
    settle: Settle = lambda value: value,
    upper_half: UpperHalf | None = None,
) -> Draw:
    """All random words a chain needs for a batch, in one go.

    Args:
        xp: numpy or jax.numpy.
        chain: What will ask for them.
        seed: Lower and upper half, uint32 scalars.
        samples: Sample ids, uint32 [n].
        epoch: Epoch, a uint32 scalar.
        settle: See :func:`run_chain`.
        upper_half: Upper 32 bits of a product of uint32; numpy's unless given.
    """
    places = [(op.id, block) for op in chain.operations for block in range(blocks_of(op))]
    if not places:
        return lambda operation, block: ()  # type: ignore[return-value]
    shape = (len(places), len(samples))

    def spread(values: Array) -> Array:
        return xp.broadcast_to(xp.asarray(values, xp.uint32), shape)

    operations = spread(np.array([[place[0]] for place in places], np.uint32))
    blocks = spread(np.array([[place[1]] for place in places], np.uint32))
    counter = (blocks, spread(samples), operations, spread(epoch))
    key = (spread(seed[0]), spread(seed[1]))
    words = settle(philox(xp, counter, *key, upper_half or upper_half_wide))
    rows = {place: row for row, place in enumerate(places)}

    def draw(operation: int, block: int) -> Words:
        row = rows[operation, block]
        return words[0][row], words[1][row], words[2][row], words[3][row]

    return draw


def blocks_of(op: Operation) -> int:
    """How many blocks of random words an operation may use."""
    return {PAD: 0, WINDOW: 0, ERASE: 11}.get(op.kind, 1)


def philox(xp: Any, counter: Words, low: Array, high: Array, upper_half: UpperHalf) -> Words:
    """Philox4x32-10 on arrays of one shape, uint32."""
    c0, c1, c2, c3 = counter
    first, second = (xp.asarray(m, xp.uint32) for m in (0xD2511F53, 0xCD9E8D57))
    for _ in range(10):
        c0, c1, c2, c3 = (
            upper_half(c2, second) ^ c1 ^ low,
            c2 * second,
            upper_half(c0, first) ^ c3 ^ high,
            c0 * first,
        )
        low = low + xp.asarray(0x9E3779B9, xp.uint32)
        high = high + xp.asarray(0xBB67AE85, xp.uint32)
    return c0, c1, c2, c3


def upper_half_wide(a: Array, b: Array) -> Array:
    """Upper 32 bits of a product, by way of 64-bit integers."""
    return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def upper_half_narrow(a: Array, b: Array) -> Array:
    """The same from products of 16-bit halves, where there are no 64-bit integers."""
    a_low, a_high, b_low, b_high = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
    low_high, high_low = a_low * b_high, a_high * b_low
    middle = ((a_low * b_low) >> 16) + (low_high & 0xFFFF) + (high_low & 0xFFFF)
    return a_high * b_high + (low_high >> 16) + (high_low >> 16) + (middle >> 16)


def bounded(xp: Any, word: Array, n: Array) -> Array:
    """floor(u · n) for u = (word >> 8) / 2^24, exact for n < 2^19; int32."""
    n = xp.asarray(n).astype(xp.uint32)
    fraction = word >> 8
    return (((fraction >> 12) * n + (((fraction & 0xFFF) * n) >> 12)) >> 12).astype(xp.int32)


def entry_of(xp: Any, word: Array) -> Array:
    """One of the 4096 entries of a table."""
    return (word >> 20).astype(xp.int32)


def run_chain(
    xp: Any, chain: Chain, images: Array, draw: Draw, settle: Settle = lambda value: value
) -> tuple[Array, Finish]:
    """Transform a batch.

    Args:
        xp: numpy or jax.numpy.
        chain: Compiled for pictures of ``images.shape[1:]``.
        images: uint8 [n, h, w, c].
        draw: Random words, see :func:`draws`.
        settle: Applied to every intermediate result. A compiler that fuses would otherwise compute
            a picture again for each of the four taps that the next warp reads, and so on.

    Returns:
        uint8 [n, h', w', c] and what is left to the normalisation.
    """
    finish = Finish(None, None)
    for op in chain.operations:
        if op.kind == PAD:
            images = pad(xp, op, images)
        elif op.kind in (CROP, WINDOW):
            images = window(xp, op, images, draw)
        elif op.kind == FLIP:
            chosen = (draw(op.id, 0)[0] >> 8).astype(xp.int32) < op.args[0]
            if op.last:
                finish = flip_finish(xp, op, finish, chosen)
            else:
                images = flip(xp, images, chosen)
        elif op.kind in (ROTATE, SCALE):
            images = warp(xp, op, images, draw)
        elif op.kind == ERASE:
            finish = finish._replace(rectangle=settle(rectangle(xp, op, draw)))
        images = settle(images)
    return images, finish


def pad(xp: Any, op: Operation, images: Array) -> Array:
    """Borders of any mode."""
    top, left, bottom, right, mode, fill = op.args
    sides = ((0, 0), (top, bottom), (left, right), (0, 0))
    more = {"constant_values": fill} if mode == 0 else {}
    return xp.pad(images, sides, mode=PAD_MODES[mode], **more)


def window(xp: Any, op: Operation, images: Array, draw: Draw) -> Array:
    """A crop at a fixed or a drawn place."""
    height, width = op.after[:2]
    if op.kind == WINDOW:
        top, left = op.args[:2]
        return images[:, top : top + height, left : left + width]
    words = draw(op.id, 0)
    top = bounded(xp, words[0], op.before[0] - height + 1)
    left = bounded(xp, words[1], op.before[1] - width + 1)
    rows = top[:, None] + xp.arange(height, dtype=xp.int32)
    columns = left[:, None] + xp.arange(width, dtype=xp.int32)
    sample = xp.arange(len(images), dtype=xp.int32)[:, None, None]
    return images[sample, rows[:, :, None], columns[:, None, :]]


def flip(xp: Any, images: Array, chosen: Array) -> Array:
    """Mirror the chosen samples."""
    return xp.where(chosen[:, None, None, None], images[:, :, ::-1], images)


def flip_finish(xp: Any, op: Operation, finish: Finish, chosen: Array) -> Finish:
    """Leave a flip to the normalisation; a rectangle erased before it is mirrored too."""
    flipped = chosen if finish.flip is None else finish.flip ^ chosen
    if finish.rectangle is None:
        return Finish(flipped, None)
    top, left, height, width = finish.rectangle
    left = xp.where(chosen, op.before[1] - left - width, left)
    return Finish(flipped, (top, left, height, width))


def warp(xp: Any, op: Operation, images: Array, draw: Draw) -> Array:
    """Rotate or scale about the centre, bilinear, outside pixels ``fill``."""
    n, h, w, c = images.shape
    entry = entry_of(xp, draw(op.id, 0)[0])
    table = xp.asarray(op.table)
    if op.kind == ROTATE:
        xx, yx = table[2 * entry], table[2 * entry + 1]
        xy, yy = -yx, xx
    else:
        xx = yy = table[entry]
        xy = yx = xp.zeros_like(xx)
    # twice the distance to the centre, which lies between pixels if the extent is even
    dx = (2 * xp.arange(w, dtype=xp.int32) + 1 - w)[None, None, :]
    dy = (2 * xp.arange(h, dtype=xp.int32) + 1 - h)[None, :, None]
    xx, xy, yx, yy = (m[:, None, None] for m in (xx, xy, yx, yy))
    sx = ((w - 1) << 15) + ((dx * xx + dy * xy) >> 1)
    sy = ((h - 1) << 15) + ((dx * yx + dy * yy) >> 1)
    # a border of one pixel makes all four taps of every position near the picture readable
    fill = op.args[0]
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    bordered = xp.pad(images, sides, constant_values=fill).reshape(n, (h + 2) * (w + 2), c)
    column, row = (sx >> 16) + 1, (sy >> 16) + 1
    inside = (column >= 0) & (column <= w) & (row >= 0) & (row <= h)
    corner = xp.where(inside, row * (w + 2) + column, 0).reshape(n, h * w)
    sample = xp.arange(n, dtype=xp.int32)[:, None]

    def tap(step: int) -> Array:
        return bordered[sample, corner + step].reshape(n, h, w, c).astype(xp.int32)

    fx, fy = ((sx >> 8) & 255)[..., None], ((sy >> 8) & 255)[..., None]
    upper = (256 - fx) * tap(0) + fx * tap(1)
    lower = (256 - fx) * tap(w + 2) + fx * tap(w + 3)
    value = ((256 - fy) * upper + fy * lower + 32768) >> 16
    return xp.where(inside[..., None], value, fill).astype(xp.uint8)


def rectangle(xp: Any, op: Operation, draw: Draw) -> tuple[Array, Array, Array, Array]:
    """The rectangle to erase: the first of ten tries that fits, height 0 if there is none."""
    h, w = op.before[:2]
    sides, roots, inverses = xp.asarray(op.table).reshape(3, ENTRIES)
    wanted = (draw(op.id, 0)[0] >> 8).astype(xp.int32) < op.args[0]
    attempts = [draw(op.id, block) for block in range(1, 11)]
    words = [xp.stack([attempt[k] for attempt in attempts]) for k in range(4)]
    side, ratio = sides[entry_of(xp, words[0])], entry_of(xp, words[1])
    height = (side * roots[ratio] + (1 << 17)) >> 18
    width = (side * inverses[ratio] + (1 << 17)) >> 18
    fits = wanted & (height >= 1) & (width >= 1) & (height < h) & (width < w)
    # where it does not fit, a size of 1 keeps the unused position in range
    height, width = xp.where(fits, height, 1), xp.where(fits, width, 1)
    top, left = bounded(xp, words[2], h - height + 1), bounded(xp, words[3], w - width + 1)
    first, any_fits = xp.argmax(fits, axis=0)[None], fits.any(axis=0)

    def chosen(part: Array) -> Array:
        return xp.where(any_fits, xp.take_along_axis(part, first, axis=0)[0], 0)

    return chosen(top), chosen(left), chosen(height), chosen(width)


def normalize(
    xp: Any, images: Array, finish: Finish, table: Array, out_channels: int | None = None
) -> Array:
    """The fused normalisation: look up every value, flip, erase, add channels of zeros.

    Args:
        xp: numpy or jax.numpy.
        images: uint8 [n, h, w, c].
        finish: Flips and rectangles.
        table: [c, 256] of the result's dtype.
        out_channels: Channels of the result, at least c.

    Returns:
        [n, h, w, out_channels] of the table's dtype.
    """
    n, h, w, c = images.shape
    if finish.flip is not None:
        images = flip(xp, images, finish.flip)
    values = table[xp.arange(c), images.astype(xp.int32)]
    if finish.rectangle is not None:
        top, left, height, width = (part[:, None, None] for part in finish.rectangle)
        rows = xp.arange(h, dtype=xp.int32)[None, :, None]
        columns = xp.arange(w, dtype=xp.int32)[None, None, :]
        erased = (rows >= top) & (rows < top + height)
        erased = erased & (columns >= left) & (columns < left + width)
        values = xp.where(erased[..., None], xp.zeros((), table.dtype), values)
    if out_channels is not None and out_channels > c:
        values = xp.pad(values, ((0, 0), (0, 0), (0, 0), (0, out_channels - c)))
    return values
