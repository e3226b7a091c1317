"""Inverted dropout. The mask is a pure function of (seed, step, layer, sample, element).

Nothing is carried from step to step, so a mask is new at every step, equal in forward and backward,
and the same on every backend and for every split of the batch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from renaissance.core.errors import ShapeError, check_real, fail
from renaissance.lowering.checks import accumulator, check_floating

MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10

Word = jax.Array


def philox4x32(counter: tuple[Word, Word, Word, Word], key: tuple[Word, Word]) -> tuple[Word, ...]:
    """Philox4x32-10: four random words of a 128-bit counter and a 64-bit key.

    Args:
        counter: Four uint32 arrays that broadcast together, low word first.
        key: Two uint32 arrays, low word first.

    Returns:
        Four uint32 arrays of the broadcast shape.

    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _multiply(c0, MULTIPLIER_0)
        high1, low1 = _multiply(c2, MULTIPLIER_1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + jnp.uint32(WEYL_0), k1 + jnp.uint32(WEYL_1)
    return c0, c1, c2, c3


def uniform(
    samples: int, elements: int, *, seed: Any, operation: Any = 0, step: Any = 0, first: Any = 0
) -> jax.Array:
    """Uniform numbers in [0, 1): ``(word >> 8) 2^-24``.

    The counter words are (element div 4, sample, operation, step); element mod 4 picks the word.

    Args:
        samples: Rows to draw.
        elements: Numbers per row.
        seed: 64-bit key: an integer, or two 32-bit words, low word first.
        operation: Which operation or layer draws.
        step: Step (or epoch) index.
        first: Sample id of the first row.

    Returns:
        fp32 ``(samples, elements)``.

    Raises:
        ShapeError: ``seed`` is an array of another shape than ``(2,)``.
    """
    quads = -(-elements // 4)
    element = jnp.arange(quads, dtype=jnp.uint32)[None, :]
    sample = (jnp.arange(samples, dtype=jnp.uint32) + _word(first))[:, None]
    counter = (element, sample, _word(operation), _word(step))
    words = jnp.stack(philox4x32(counter, seed_words(seed)), -1)
    number = (words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
    return number.reshape(samples, quads * 4)[:, :elements]


def dropout(
    x: Any, p: float, *, seed: Any, step: Any, layer: Any = 0, first_sample: Any = 0
) -> jax.Array:
    """Zero each element with probability ``p`` and scale the others by ``1 / (1 - p)``.

    An element is kept if ``u >= p``, with ``u = uniform(seed, layer, step, sample, element)``;
    ``element`` counts within a sample in memory order. ``p = 0`` is the identity. At inference
    there is nothing to do.

    Args:
        x: ``(N, ...)``, fp16, fp32 or fp64.
        p: Probability of dropping, in [0, 1).
        seed: 64-bit key: an integer, or two 32-bit words, low word first.
        step: Index of the training step.
        layer: Index of the layer in its network.
        first_sample: Index in the whole batch of the first row of ``x``.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        ShapeError: ``x`` is a scalar or ``seed`` is not a 64-bit key.
        TypeError: ``x`` is not a floating array.
        ValueError: ``p`` is out of range.

    Source: Srivastava et al. 2014, "Dropout".
    """
    x = check_floating("x", x)
    p = check_real("p", p, 0.0, 1.0, open_high=True)
    if x.ndim == 0:
        fail(ShapeError, "shape of x", tuple(x.shape), "at least an axis of samples")
    if p == 0 or x.size == 0:
        return x
    n = x.shape[0]
    u = uniform(n, x.size // n, seed=seed, operation=layer, step=step, first=first_sample)
    wide = accumulator(x)
    kept = (x.astype(wide) * wide(1 / (1 - p))).astype(x.dtype)
    return jnp.where((u >= jnp.float32(p)).reshape(x.shape), kept, jnp.zeros((), x.dtype))


def seed_words(seed: Any) -> tuple[Word, Word]:
    """The two 32-bit words of a 64-bit seed, low word first.

    Args:
        seed: An integer, taken modulo 2^64, or an array of two 32-bit integers.

    Returns:
        Two uint32 scalars.

    Raises:
        ShapeError: an array is not of shape ``(2,)``.
    """
    if isinstance(seed, int):
        return jnp.uint32(seed & 0xFFFFFFFF), jnp.uint32((seed >> 32) & 0xFFFFFFFF)
    words = jnp.asarray(seed)
    if words.shape != (2,):
        fail(ShapeError, "shape of seed", words.shape, "(2,): low and high 32-bit words")
    return words[0].astype(jnp.uint32), words[1].astype(jnp.uint32)


def _word(value: Any) -> Word:
    if isinstance(value, int):
        return jnp.uint32(value & 0xFFFFFFFF)
    return jnp.asarray(value).astype(jnp.uint32)


def _multiply(a: Word, b: int) -> tuple[Word, Word]:
    """High and low words of a 32 x 32 bit product, without 64-bit integers."""
    low_mask = jnp.uint32(0xFFFF)
    a_low, a_high = a & low_mask, a >> 16
    b_low, b_high = jnp.uint32(b & 0xFFFF), jnp.uint32(b >> 16)
    low = a_low * b_low
    middle = a_high * b_low + (low >> 16)
    middle_low = a_low * b_high + (middle & low_mask)
    high = a_high * b_high + (middle >> 16) + (middle_low >> 16)
    return high, a * jnp.uint32(b)
