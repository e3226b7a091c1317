"""A chain of geometric transforms as integers: the one definition that all implementations share.

Numpy, the native workers and the device run the same operations on the same integers: positions in
1/65536 pixel, interpolation weights in 1/256, and every random choice an entry of a table or an
exact multiple. So their results are equal, not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from renaissance.core.errors import ShapeError
from renaissance.data.transforms import (
    PAD_MODES,
    CenterCrop,
    DoNothing,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomScale,
    Transform,
    check_chain,
)

PAD, CROP, WINDOW, FLIP, ROTATE, SCALE, ERASE = range(1, 8)
ENTRIES = 4096
MOST_SIDE = 1024
MOST_CHANNELS = 4
MOST_ARGS = 6
FIRST_OPERATION = 1 << 30
"""Operation word of a chain's first transform; layers and tensors have lower numbers."""

ImageShape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One transform for pictures of one shape.

    Attributes:
        kind: PAD: (top, left, bottom, right, mode, fill) · CROP: (h, w) · WINDOW: (top, left, h,
            w) · FLIP: (threshold,) · ROTATE: (fill,), table of cosine, sine · SCALE: (fill,), table
            of inverse factors · ERASE: (threshold,), tables of sides, roots of ratios, inverses.
        id: Operation word of its random numbers.
        last: A flip or erasure that is left to the normalisation.
        args: Integers, by kind.
        table: int32, by kind; empty if it needs none.
        before: Shape of the pictures going in.
        after: Shape of the pictures coming out.
    """

    kind: int
    id: int
    args: tuple[int, ...]
    before: ImageShape
    after: ImageShape
    table: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    last: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Operations for pictures of one shape, in order.

    Attributes:
        before: Shape (height, width, channels) of the pictures going in.
        after: Shape of the pictures coming out.
        operations: What happens between.
    """

    before: ImageShape
    after: ImageShape
    operations: tuple[Operation, ...]

    def words(self) -> np.ndarray:
        """The chain as int32 words for the native library."""
        pieces: list[Sequence[int] | np.ndarray] = [(*self.before, len(self.operations))]
        for op in self.operations:
            pieces.append((op.kind, op.id, int(op.last), len(op.args), len(op.table), *op.args))
            pieces.append(op.table)
        return np.concatenate([np.asarray(piece, np.int32) for piece in pieces])

    def records(self) -> tuple[int, ...]:
        """The chain as fixed records for the device's kernel (``csrc/data/kinds.h``)."""
        found = [*self.before, len(self.operations)]
        begin = 0
        for op in self.operations:
            length = len(op.table)
            found += [op.kind, op.id, int(op.last), len(op.args), length, begin]
            found += [*op.before[:2], *op.after[:2], *op.args, *[0] * (MOST_ARGS - len(op.args))]
            begin += length
        return tuple(found)

    def tables(self) -> np.ndarray:
        """The tables of all operations, one after the other, int32; at least one entry."""
        return np.concatenate([*(op.table for op in self.operations), np.zeros(1, np.int32)])


def is_geometric(transform: Transform) -> bool:
    """Whether a transform is one of those this module defines."""
    kinds = (DoNothing, Pad, CenterCrop, RandomCrop, RandomHorizontalFlip)
    return isinstance(transform, (*kinds, RandomRotation, RandomScale, RandomErasing))


def is_small(transforms: Sequence[Transform], shape: ImageShape) -> bool:
    """Whether a chain on pictures of this shape is geometric throughout and within the limits."""
    if not all(is_geometric(transform) for transform in transforms):
        return False
    for position, transform in enumerate(transforms):
        if max(shape[:2]) > MOST_SIDE or shape[2] > MOST_CHANNELS:
            return False
        shape = lower(transform, shape, position).after
    return max(shape[:2]) <= MOST_SIDE and shape[2] <= MOST_CHANNELS


def lower_chain(transforms: Sequence[Transform], shape: ImageShape) -> Chain:
    """Compile geometric transforms for pictures of one shape.

    Args:
        transforms: Records; all must be geometric.
        shape: Height, width and channels of the pictures going in.

    Raises:
        ShapeError: A crop is larger than its picture, a mirrored border larger than it allows.
    """
    transforms = check_chain(transforms)
    tail = len(transforms) - finish_length(transforms)
    operations, before = [], shape
    for position, transform in enumerate(transforms):
        if isinstance(transform, DoNothing):
            continue
        operation = lower(transform, shape, position, position >= tail)
        operations.append(operation)
        shape = operation.after
    return Chain(before, shape, tuple(operations))


def finish_length(transforms: Sequence[Transform]) -> int:
    """How many transforms at the end of a chain are left to the normalisation."""
    length = 0
    for transform in reversed(transforms):
        if not isinstance(transform, (RandomHorizontalFlip, RandomErasing, DoNothing)):
            break
        length += 1
    return length


@lru_cache(maxsize=256)
def lower(transform: Transform, shape: ImageShape, position: int, last: bool = False) -> Operation:
    """Compile one geometric transform; ``position`` is its place in the chain."""
    h, w, c = shape
    place = (FIRST_OPERATION + position, shape)
    match transform:
        case DoNothing():
            return Operation(WINDOW, place[0], (0, 0, h, w), shape, shape)
        case Pad():
            return lower_pad(transform, *place)
        case CenterCrop():
            height, width = fitting(transform, shape)
            middle = ((h - height) // 2, (w - width) // 2, height, width)
            return Operation(WINDOW, place[0], middle, shape, (height, width, c))
        case RandomCrop():
            height, width = fitting(transform, shape)
            return Operation(CROP, place[0], (height, width), shape, (height, width, c))
        case RandomHorizontalFlip():
            return Operation(FLIP, place[0], (threshold(transform.p),), shape, shape, last=last)
        case RandomRotation():
            table = rotation_table(*transform.degrees)  # type: ignore[misc]
            return Operation(ROTATE, place[0], (transform.fill,), shape, shape, table)
        case RandomScale():
            table = scale_table(transform.low, transform.high)
            return Operation(SCALE, place[0], (transform.fill,), shape, shape, table)
        case RandomErasing():
            args = (threshold(transform.p),)
            table = erasing_table(transform.scale, transform.ratio, h * w)
            return Operation(ERASE, place[0], args, shape, shape, table, last=True)
    raise TypeError(f"{transform!r} is not geometric")


def fitting(transform: CenterCrop | RandomCrop, shape: ImageShape) -> tuple[int, int]:
    """The size of a crop, checked against its picture."""
    height, width = transform.size  # type: ignore[misc]
    if height > shape[0] or width > shape[1]:
        raise ShapeError(
            f"{transform} takes {height}x{width} pixels from pictures of {shape[0]}x{shape[1]}; "
            "pad or resize them before"
        )
    return height, width


def lower_pad(transform: Pad, id: int, shape: ImageShape) -> Operation:
    """Compile a border; mirrored ones cannot be wider than what they mirror."""
    left, top, right, bottom = transform.padding  # type: ignore[misc]
    h, w, c = shape
    room = {"reflect": 1, "symmetric": 0}.get(transform.mode)
    if room is not None and (max(top, bottom) > h - room or max(left, right) > w - room):
        raise ShapeError(
            f"{transform} mirrors more than pictures of {h}x{w} have; expected at most "
            f"{h - room} rows and {w - room} columns"
        )
    args = (top, left, bottom, right, PAD_MODES.index(transform.mode), transform.fill)
    return Operation(PAD, id, args, shape, (h + top + bottom, w + left + right, c))


def threshold(p: float) -> int:
    """``u < p`` for a uniform u of 24 bits is ``bits < threshold``."""
    return int(np.ceil(p * 2.0**24))


def midpoints(low: float, high: float) -> np.ndarray:
    """The middles of 4096 equal parts of a range, float64."""
    return low + (high - low) * ((np.arange(ENTRIES) + 0.5) / ENTRIES)


def fixed(values: np.ndarray, one: int) -> np.ndarray:
    """Values in units of 1/one, rounded, int32."""
    return np.rint(values * one).astype(np.int32)


def rotation_table(low: float, high: float) -> np.ndarray:
    """Cosine and sine of every angle, in 1/65536, interleaved."""
    angles = np.deg2rad(midpoints(low, high))
    return fixed(np.stack((np.cos(angles), np.sin(angles)), axis=1).ravel(), 1 << 16)


def scale_table(low: float, high: float) -> np.ndarray:
    """The inverse of every factor, in 1/65536."""
    return np.maximum(fixed(1.0 / midpoints(low, high), 1 << 16), 1)


def erasing_table(scale: Sequence[float], ratio: Sequence[float], area: int) -> np.ndarray:
    """Sides of squares of every area in 1/256 pixel; roots of ratios, and inverses, in 1/1024.

    height = side · root, width = side / root: then height · width is the area, height / width the
    ratio.
    """
    sides = np.sqrt(midpoints(*scale) * area)
    roots = np.exp(midpoints(*np.log(np.asarray(ratio, np.float64))) / 2)
    return np.concatenate((fixed(sides, 1 << 8), fixed(roots, 1 << 10), fixed(1 / roots, 1 << 10)))
