"""Random parameters for one picture at a time, in plain Python integers.

The same numbers as core.philox gives; a single block costs a few microseconds this way, which
matters when every picture draws a handful.
"""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.core.philox import random_words
from renaissance.data.chain import ENTRIES, FIRST_OPERATION, Operation

_WORD = 0xFFFF_FFFF


def philox_block(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """One block of Philox4x32-10."""
    c0, c1, c2, c3 = counter
    low, high = key & _WORD, key >> 32
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = (second >> 32) ^ c1 ^ low, second & _WORD
        c2, c3 = (first >> 32) ^ c3 ^ high, first & _WORD
        low, high = (low + 0x9E3779B9) & _WORD, (high + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of one transform on one sample.

    Attributes:
        seed: 64-bit key.
        epoch: Epoch.
        sample: Sample id.
        operation: Operation word, see :meth:`at`.
    """

    seed: int
    epoch: int
    sample: int
    operation: int = FIRST_OPERATION

    def at(self, position: int) -> Draw:
        """The numbers of the transform at a place in the chain."""
        return Draw(self.seed, self.epoch, self.sample, FIRST_OPERATION + position)

    def block(self, index: int) -> tuple[int, int, int, int]:
        """Four words."""
        return philox_block((index, self.sample, self.operation, self.epoch), self.seed)

    def uniforms(self, index: int = 0) -> tuple[float, float, float, float]:
        """Four uniform numbers in [0, 1), multiples of 2^-24."""
        a, b, c, d = self.block(index)
        return (a >> 8) * 2.0**-24, (b >> 8) * 2.0**-24, (c >> 8) * 2.0**-24, (d >> 8) * 2.0**-24

    def words(self, count: int):  # type: ignore[no-untyped-def]
        """Many words at once, uint32 [count]."""
        place = {"sample": self.sample, "operation": self.operation, "step": self.epoch}
        return random_words(self.seed, count, **place)


def bounded(word: int, n: int) -> int:
    """floor(u · n) for u = (word >> 8) / 2^24."""
    return ((word >> 8) * n) >> 24


def entry_of(word: int) -> int:
    """One of the 4096 entries of a table."""
    return word >> 20


def choose_rectangle(op: Operation, draw: Draw) -> tuple[int, int, int, int] | None:
    """What an erasing operation blanks: (top, left, height, width), or None."""
    if (draw.block(0)[0] >> 8) >= op.args[0]:
        return None
    h, w = op.before[:2]
    for attempt in range(1, 11):
        words = draw.block(attempt)
        side, ratio = int(op.table[entry_of(words[0])]), entry_of(words[1])
        height = (side * int(op.table[ENTRIES + ratio]) + (1 << 17)) >> 18
        width = (side * int(op.table[2 * ENTRIES + ratio]) + (1 << 17)) >> 18
        if 1 <= height < h and 1 <= width < w:
            top, left = bounded(words[2], h - height + 1), bounded(words[3], w - width + 1)
            return top, left, height, width
    return None
