"""Random numbers are a pure function of where they are used."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.core import philox


def scalar_philox(counter: tuple[int, ...], key: int) -> tuple[int, ...]:
    """The definition, one block at a time in Python's integers."""
    a, b, c, d = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for r in range(10):
        x = (k0 + r * 0x9E3779B9) % 2**32
        y = (k1 + r * 0xBB67AE85) % 2**32
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ x, q % 2**32, (p >> 32) ^ d ^ y, p % 2**32
    return a, b, c, d


WORD = st.integers(0, 2**32 - 1)
SEED = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_random123(counter: tuple[int, ...], key: int, words: str) -> None:
    block = philox.philox4x32(np.array(counter, np.uint32), key)
    assert block.dtype == np.uint32
    assert " ".join(f"{int(w):08x}" for w in block) == words
    assert " ".join(f"{w:08x}" for w in scalar_philox(counter, key)) == words


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=1, max_size=9), SEED)
def test_vectors_equal_the_scalar_definition(counters: list[tuple[int, ...]], key: int) -> None:
    blocks = philox.philox4x32(np.array(counters, np.uint32), key)
    assert blocks.tolist() == [list(scalar_philox(c, key)) for c in counters]


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3, 4), (0, 4)])
def test_any_leading_shape(shape: tuple[int, ...]) -> None:
    counter = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    out = philox.philox4x32(counter, 5)
    assert out.shape == shape
    assert out.reshape(-1, 4).tolist() == philox.philox4x32(counter.reshape(-1, 4), 5).tolist()


@settings(deadline=None, max_examples=30)
@given(SEED, st.integers(0, 40), WORD, WORD, WORD)
def test_counter_words_are_element_sample_operation_step(
    seed: int, element: int, sample: int, operation: int, step: int
) -> None:
    words = philox.random_words(seed, 41, sample=sample, operation=operation, step=step)
    block = scalar_philox((element // 4, sample, operation, step), seed)
    assert int(words[element]) == block[element % 4]


def test_chunks_join_without_a_seam() -> None:
    count = 4 * philox._CHUNK_BLOCKS + 7
    words = philox.random_words(3, count)
    for element in (0, 4 * philox._CHUNK_BLOCKS - 1, 4 * philox._CHUNK_BLOCKS, count - 1):
        assert int(words[element]) == scalar_philox((element // 4, 0, 0, 0), 3)[element % 4]
    assert philox.normal(3, count)[-5:].tolist() == (
        philox.normal_at(np.arange(count - 5, count), 3).tolist()
    )


@pytest.mark.parametrize("draw", [philox.random_words, philox.uniform, philox.normal])
def test_a_shorter_draw_is_the_beginning_of_a_longer_one(draw) -> None:
    whole = draw(11, 23, sample=1, operation=2, step=3)
    for count in range(24):
        part = draw(11, count, sample=1, operation=2, step=3)
        assert part.shape == (count,)
        assert part.tobytes() == whole[:count].tobytes()


def test_uniform_is_the_upper_24_bits() -> None:
    words = philox.random_words(9, 1001, step=4)
    u = philox.uniform(9, 1001, step=4)
    assert u.dtype == np.float32
    assert u.tolist() == [(int(w) >> 8) * 2.0**-24 for w in words]
    assert u.min() >= 0 and u.max() < 1


def test_normal_is_box_muller_of_neighbouring_uniforms() -> None:
    u = philox.uniform(21, 4000, operation=6).astype(np.float64)
    z = philox.normal(21, 4000, operation=6)
    assert z.dtype == np.float64
    for a, b, even, odd in zip(u[::2], u[1::2], z[::2], z[1::2], strict=True):
        radius, angle = math.sqrt(-2 * math.log(1 - a)), 2 * math.pi * b
        assert even == pytest.approx(radius * math.cos(angle), abs=4e-15)
        assert odd == pytest.approx(radius * math.sin(angle), abs=4e-15)


def test_logarithm_and_circle_are_accurate_at_every_edge() -> None:
    x = np.concatenate([np.arange(1, 3000), 2**24 - np.arange(3000), 2 ** np.arange(25)]) * 2.0**-24
    log = np.array([math.log(v) for v in x])
    assert np.all(np.abs(philox._log(x) - log) <= 4 * np.spacing(np.abs(log)))
    turns = np.arange(0, 2**24, 2**21 // 8, dtype=np.uint32)
    turns = np.concatenate([turns, turns + 1, turns[1:] - 1])
    cosine, sine = philox._cos_sin_turns(turns)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * turns * 2.0**-24), rtol=0, atol=2e-15)
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * turns * 2.0**-24), rtol=0, atol=2e-15)
    quarters = philox._cos_sin_turns(np.arange(4, dtype=np.uint32) << np.uint32(22))
    assert np.array(quarters).tolist() == [[1, 0, -1, 0], [0, 1, 0, -1]]


def test_normal_has_the_moments_of_a_normal() -> None:
    z = philox.normal(2024, 200_000)
    assert z.mean() == pytest.approx(0, abs=0.01)
    assert z.std() == pytest.approx(1, abs=0.01)
    assert (z**3).mean() == pytest.approx(0, abs=0.05)
    assert (z**4).mean() == pytest.approx(3, abs=0.1)
    assert np.corrcoef(z[::2], z[1::2])[0, 1] == pytest.approx(0, abs=0.01)
    assert np.isfinite(z).all()


def test_normal_at_picks_from_the_same_stream() -> None:
    z = philox.normal(5, 103, sample=1, operation=2, step=3)
    index = np.array([[102, 0, 1], [50, 50, 51]])
    picked = philox.normal_at(index, 5, sample=1, operation=2, step=3)
    assert picked.shape == index.shape
    assert picked.tolist() == z[index].tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_permutation_holds_each_sample_once(n: int) -> None:
    order = philox.permutation(n, 17, 4)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


def test_equal_keys_of_a_permutation_keep_the_order_of_indices(monkeypatch) -> None:
    keys = np.random.default_rng(0).integers(0, 3, 2000, np.uint32)
    monkeypatch.setattr(philox, "random_words", lambda *args, **place: keys)
    wide = keys[0::2] + (keys[1::2].astype(np.uint64) << np.uint64(32))
    expected = np.argsort(wide, kind="stable")
    np.testing.assert_array_equal(philox.permutation(1000, 1, 0), expected)


def test_permutation_sorts_by_64_bit_keys() -> None:
    words = [
        w for i in range(25) for w in scalar_philox((i, 0, philox.PERMUTATION_OPERATION, 6), 3)
    ]
    keys = [low + (high << 32) for low, high in zip(words[::2], words[1::2], strict=True)]
    assert philox.permutation(50, 3, 6).tolist() == sorted(range(50), key=lambda i: (keys[i], i))


def test_permutation_differs_by_seed_and_epoch() -> None:
    orders = {tuple(philox.permutation(30, s, e)) for s in range(4) for e in range(5)}
    assert len(orders) == 20


def test_every_place_of_a_permutation_is_equally_likely() -> None:
    orders = np.stack([philox.permutation(5, 1, epoch) for epoch in range(2000)])
    counts = np.stack([np.bincount(column, minlength=5) for column in orders.T])
    assert np.abs(counts - 400).max() < 90  # five deviations of a binomial


@pytest.mark.parametrize(
    ("draw", "digest"),
    [
        (lambda: philox.random_words(123, 999, sample=1, operation=2, step=3), "e44acfaae77726d9"),
        (lambda: philox.uniform(123, 999, sample=1, operation=2, step=3), "dc0269414b1682cc"),
        (lambda: philox.normal(123, 99_999, sample=1, operation=2, step=3), "24639f47542a2ab1"),
        (lambda: philox.permutation(999, 123, 3), "4c340e5ac81816ba"),
    ],
)
def test_the_bits_never_change(draw, digest: str) -> None:
    assert hashlib.sha256(draw().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: philox.philox4x32(np.zeros(3, np.uint32), 0), ValueError, r"\(3,\)"),
        (lambda: philox.philox4x32(np.zeros(4), 0), TypeError, "float64"),
        (
            lambda: philox.philox4x32(np.zeros(4, np.uint32), 2**64),
            ValueError,
            "key is 1844",
        ),
        (lambda: philox.uniform(-1, 4), ValueError, "seed is -1"),
        (lambda: philox.uniform(0, -4), ValueError, "count is -4"),
        (lambda: philox.uniform(0, 4, sample=2**32), ValueError, "sample is 4294967296"),
        (lambda: philox.uniform(0, 4, operation=-1), ValueError, "operation is -1"),
        (lambda: philox.uniform(0, 4, step=0.5), TypeError, "step is 0.5"),
        (lambda: philox.normal_at(np.array([-1]), 0), ValueError, "elements"),
        (lambda: philox.normal_at(np.array([0.5]), 0), TypeError, "float64"),
        (lambda: philox.permutation(-1, 0, 0), ValueError, "n is -1"),
    ],
)
def test_errors_name_the_value(call, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()
