"""Philox4x32-10: counter-based random numbers, the only source of randomness in the framework.

A random number is a pure function of *where it is used*, never of what was drawn before, so any
number of workers or devices gives the same bytes. The four 32-bit counter words of a use are::

    (element index div 4, sample id, operation or layer id, step or epoch)

and element ``e`` takes word ``e mod 4`` of its block. The key is the 64-bit seed.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

The normal distribution uses only operations that IEEE 754 rounds exactly (+, -, *, /, sqrt and
integer steps); ``log``, ``sin`` and ``cos`` of the C or vector library differ in the last bit from
machine to machine, ours do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from renaissance.core.errors import check_int, fail

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

PERMUTATION_OPERATION = 0xFFFF_FFFF
"""Operation word of :func:`permutation`; no layer, tensor or transform has so high a number."""

BEFORE_FIRST_STEP = 0xFFFF_FFFF
"""Step word (-1) of what is drawn once before training, so that no step shares its numbers."""

_WORD = 0xFFFF_FFFF
_CHUNK_BLOCKS = 1 << 14  # blocks computed at once: the temporaries stay in the second-level cache


def philox4x32(counter: ArrayLike, key: int) -> NDArray[np.uint32]:
    """The ten-round bijection of a block of counters.

    Args:
        counter: ``uint32[..., 4]``, low word first.
        key: 64-bit key; its low half is the first key word.

    Returns:
        ``uint32[..., 4]`` random words.

    Raises:
        ValueError: the last dimension is not 4, or the key does not fit 64 bits.
        TypeError: the counter is not of integers.
    """
    words = np.asarray(counter)
    if words.dtype.kind not in "ui":
        fail(TypeError, "counter dtype", words.dtype.name, "uint32 words")
    if words.ndim == 0 or words.shape[-1] != 4:
        fail(ValueError, "counter shape", words.shape, "four words in the last dimension")
    key = check_int("key", key, 0, 2**64 - 1)
    words = words.astype(np.uint32)
    c0, c1, c2, c3 = (words[..., i] for i in range(4))
    k0, k1 = key & _WORD, key >> 32
    for _ in range(ROUNDS):
        high0, low0 = _multiply(c0, MULTIPLIERS[0])
        high1, low1 = _multiply(c2, MULTIPLIERS[1])
        c0, c1 = high1 ^ c1 ^ np.uint32(k0), low1
        c2, c3 = high0 ^ c3 ^ np.uint32(k1), low0
        k0, k1 = (k0 + WEYL[0]) & _WORD, (k1 + WEYL[1]) & _WORD
    return np.stack((c0, c1, c2, c3), axis=-1)


def _multiply(
    a: NDArray[np.uint32], multiplier: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    product = a.astype(np.uint64) * np.uint64(multiplier)
    return (product >> np.uint64(32)).astype(np.uint32), product.astype(np.uint32)


def random_words(
    seed: int, count: int, *, sample: int = 0, operation: int = 0, step: int = 0
) -> NDArray[np.uint32]:
    """The first ``count`` 32-bit words of one use's stream, ``uint32[count]``.

    Args:
        seed: 64-bit key.
        count: Number of elements, at most 2**34.
        sample: Sample id, 32 bits.
        operation: Operation, layer or tensor id, 32 bits.
        step: Step or epoch, 32 bits.
    """
    count = check_int("count", count, 0, 2**34)
    out = np.empty(-(-count // 4) * 4, np.uint32)
    use = _check_use(seed, sample, operation, step)
    for first, counter in _counters(len(out) // 4, use):
        block = philox4x32(counter, seed)
        out[4 * first : 4 * first + block.size] = block.reshape(-1)
    return out[:count]


def _counters(blocks: int, use: tuple[int, int, int]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    for first in range(0, blocks, _CHUNK_BLOCKS):
        counter = np.empty((min(_CHUNK_BLOCKS, blocks - first), 4), np.uint32)
        counter[:, 0] = np.arange(first, first + len(counter), dtype=np.uint32)
        counter[:, 1:] = use
        yield first, counter


def _check_use(seed: int, sample: int, operation: int, step: int) -> tuple[int, int, int]:
    check_int("seed", seed, 0, 2**64 - 1)
    return (
        check_int("sample", sample, 0, _WORD),
        check_int("operation", operation, 0, _WORD),
        check_int("step", step, 0, _WORD),
    )


def uniform(
    seed: int, count: int, *, sample: int = 0, operation: int = 0, step: int = 0
) -> NDArray[np.float32]:
    """Uniform numbers in [0, 1): ``(word >> 8) * 2**-24``, exact in float32.

    Args:
        seed: 64-bit key.
        count: Number of elements.
        sample: Sample id.
        operation: Operation, layer or tensor id.
        step: Step or epoch.

    Returns:
        ``float32[count]``.
    """
    words = random_words(seed, count, sample=sample, operation=operation, step=step)
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(
    seed: int, count: int, *, sample: int = 0, operation: int = 0, step: int = 0
) -> NDArray[np.float64]:
    """Standard normal numbers by the Box-Muller transform in float64.

    Elements ``2p`` and ``2p + 1`` share the uniforms ``a`` (element ``2p``) and ``b`` (``2p + 1``):
    ``r = sqrt(-2 log(1 - a))``; the even one is ``r cos(2 pi b)``, the odd one ``r sin(2 pi b)``.

    Args:
        seed: 64-bit key.
        count: Number of elements.
        sample: Sample id.
        operation: Operation, layer or tensor id.
        step: Step or epoch.

    Returns:
        ``float64[count]``, |value| <= 5.77.
    """
    count = check_int("count", count, 0, 2**34)
    out = np.empty(-(-count // 4) * 4, np.float64)
    use = _check_use(seed, sample, operation, step)
    for first, counter in _counters(len(out) // 4, use):
        words = philox4x32(counter, seed).reshape(-1, 2)
        even, odd = _box_muller(words[:, 0], words[:, 1])
        end = 4 * first + words.size
        out[4 * first : end : 2], out[4 * first + 1 : end : 2] = even, odd
    return out[:count]


def normal_at(
    elements: ArrayLike, seed: int, *, sample: int = 0, operation: int = 0, step: int = 0
) -> NDArray[np.float64]:
    """The chosen elements of :func:`normal`'s stream, without drawing those between them.

    Args:
        elements: Integer element indices, any shape.
        seed: 64-bit key.
        sample: Sample id.
        operation: Operation, layer or tensor id.
        step: Step or epoch.

    Returns:
        float64, the shape of ``elements``.
    """
    index = np.asarray(elements)
    if index.dtype.kind not in "ui":
        fail(TypeError, "elements dtype", index.dtype.name, "integers")
    if index.size and (int(index.min()) < 0 or int(index.max()) >= 2**34):
        fail(ValueError, "elements", (int(index.min()), int(index.max())), "in [0, 2**34)")
    flat = index.reshape(-1).astype(np.uint64)
    counter = np.empty((flat.size, 4), np.uint32)
    counter[:, 0] = flat >> np.uint64(2)
    counter[:, 1:] = _check_use(seed, sample, operation, step)
    words = philox4x32(counter, seed).reshape(-1, 2, 2)
    pair = words[np.arange(flat.size), (flat >> np.uint64(1)).astype(np.intp) & 1]
    even, odd = _box_muller(pair[:, 0], pair[:, 1])
    return np.where(flat & np.uint64(1), odd, even).reshape(index.shape)


def permutation(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of ``n`` samples in an epoch: a uniformly random permutation.

    Element ``i`` gets the 64-bit key made of words ``2i`` (low) and ``2i + 1`` (high) of the stream
    ``(sample 0, PERMUTATION_OPERATION, epoch)``; the indices are sorted by key, equal keys by
    index.

    Args:
        n: Number of samples.
        seed: 64-bit key.
        epoch: Epoch, 32 bits.

    Returns:
        ``int64[n]``, each of ``0 .. n - 1`` once.
    """
    n = check_int("n", n, 0, 2**33)
    words = random_words(seed, 2 * n, operation=PERMUTATION_OPERATION, step=epoch)
    low, high = words[0::2].astype(np.uint64), words[1::2].astype(np.uint64)
    keys = low | high << np.uint64(32)
    # a sort that need not keep the order of equal keys is several times faster, and there are none
    order = np.argsort(keys)
    ranked = keys[order]
    if np.any(ranked[1:] == ranked[:-1]):
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64)


def _box_muller(
    a: NDArray[np.uint32], b: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # 1 - u lies in (0, 1]: the logarithm is always finite
    open_unit = (np.uint32(1 << 24) - (a >> np.uint32(8))).astype(np.float64) * 2.0**-24
    radius = np.sqrt(-2.0 * _log(open_unit))
    cosine, sine = _cos_sin_turns(b >> np.uint32(8))
    return radius * cosine, radius * sine


_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(11))
_SIN_TERMS = tuple((-1) ** k / factorial(2 * k + 1) for k in range(8))
_COS_TERMS = tuple((-1) ** k / factorial(2 * k) for k in range(8))


def _horner(x: NDArray[np.float64], terms: tuple[float, ...]) -> NDArray[np.float64]:
    value = np.full_like(x, terms[-1])
    for term in reversed(terms[:-1]):
        value *= x
        value += term
    return value


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1))."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < _SQRT_HALF
    mantissa = np.where(small, 2.0 * mantissa, mantissa)
    e = (exponent - small).astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return e * _LN2 + s * _horner(s * s, _LOG_TERMS)


def _cos_sin_turns(
    turns: NDArray[np.uint32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosine and sine of ``turns * 2**-24`` full turns; the reduction to 1/8 turn is exact."""
    quarter = (turns + np.uint32(1 << 21)) >> np.uint32(22)
    rest = turns.astype(np.float64) - quarter.astype(np.float64) * 2.0**22
    angle = rest * (2.0 * np.pi * 2.0**-24)
    square = angle * angle
    cosine, sine = _horner(square, _COS_TERMS), angle * _horner(square, _SIN_TERMS)
    swap = (quarter & 1).astype(bool)
    near, far = np.where(swap, sine, cosine), np.where(swap, cosine, sine)
    cosine_negative = ((quarter + np.uint32(1)) & 2).astype(bool)
    sine_negative = (quarter & 2).astype(bool)
    return np.where(cosine_negative, -near, near), np.where(sine_negative, -far, far)
