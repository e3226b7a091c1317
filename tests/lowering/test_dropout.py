"""Dropout: known random numbers, the mask as a function of its counters, scaling, gradients."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core import philox
from renaissance.core.errors import ShapeError
from renaissance.lowering.dropout import philox4x32, seed_words
from renaissance.ops import dropout, uniform
from renaissance.testing import check_gradients, golden_normal

SEED = 0x9E3779B97F4A7C15


def words(values: tuple[int, ...]) -> tuple[jax.Array, ...]:
    return tuple(jnp.uint32(value) for value in values)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected) -> None:  # type: ignore[no-untyped-def]
    assert tuple(int(w) for w in philox4x32(words(counter), words(key))) == expected


@pytest.mark.parametrize("elements", [1, 3, 4, 5, 37])
def test_uniform_equals_the_host_implementation(elements: int) -> None:
    ours = uniform(3, elements, seed=SEED, operation=7, step=11, first=5)
    for row in range(3):
        expected = philox.uniform(SEED, elements, sample=5 + row, operation=7, step=11)
        np.testing.assert_array_equal(ours[row], expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(3, 2, 3, 5), (4, 9), (1, 1, 1, 1)])
def test_the_mask_is_a_function_of_the_counters(shape: tuple[int, ...], dtype: str) -> None:
    p, elements = 0.3, int(np.prod(shape[1:]))
    y = dropout(jnp.ones(shape, dtype), p, seed=SEED, step=9, layer=4)
    for sample, row in enumerate(np.asarray(y).reshape(shape[0], -1)):
        u = philox.uniform(SEED, elements, sample=sample, operation=4, step=9)
        scale = np.float32(1 / (1 - p)).astype(dtype)
        np.testing.assert_array_equal(row, np.where(u >= np.float32(p), scale, 0))


def test_seed_words_and_traced_counters_give_the_same_mask() -> None:
    x = jnp.ones((4, 33))
    expected = dropout(x, 0.5, seed=SEED, step=3, layer=2)
    as_words = jnp.asarray(np.array([SEED & 0xFFFFFFFF, SEED >> 32], np.uint32).view(np.int32))

    @jax.jit
    def traced(seed: jax.Array, step: jax.Array, layer: jax.Array) -> jax.Array:
        return dropout(x, 0.5, seed=seed, step=step, layer=layer)

    chex.assert_trees_all_equal(traced(as_words, jnp.int32(3), jnp.int32(2)), expected)


def test_a_mask_is_new_at_every_step_layer_and_seed() -> None:
    base = {"seed": 1, "step": 1, "layer": 1}
    masks = [
        tuple(np.asarray(dropout(jnp.ones((2, 40)), 0.5, **(base | change)).ravel() > 0))
        for change in ({}, {"seed": 2}, {"seed": 1 + (1 << 32)}, {"step": 2}, {"layer": 2})
    ]
    assert len(set(masks)) == len(masks)


def test_a_split_batch_sees_the_mask_of_the_whole() -> None:
    x = jnp.ones((6, 10))
    whole = dropout(x, 0.5, seed=3, step=1)
    parts = [dropout(x[i : i + 2], 0.5, seed=3, step=1, first_sample=i) for i in (0, 2, 4)]
    chex.assert_trees_all_equal(whole, jnp.concatenate(parts))


def test_zero_probability_is_the_identity() -> None:
    x = jnp.asarray(golden_normal("x", (3, 5)), jnp.float16)
    chex.assert_trees_all_equal(dropout(x, 0.0, seed=0, step=0), x)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_mean_is_kept(p: float) -> None:
    y = dropout(jnp.ones((64, 1024)), p, seed=0, step=0)
    sigma = (p / (1 - p) / y.size) ** 0.5
    assert abs(y.mean() - 1) < 4 * sigma


def test_backward_sees_the_mask_of_forward() -> None:
    x = jnp.asarray(golden_normal("x", (5, 21)), jnp.float32)
    layer = jax.jit(lambda x, step: dropout(x, 0.4, seed=7, step=step))
    y, backward = jax.vjp(lambda x: layer(x, 5), x)
    (dx,) = backward(jnp.ones_like(x))
    chex.assert_trees_all_equal(dx == 0, y == 0)
    chex.assert_trees_all_close(y, dx * x, rtol=1e-6)
    assert (layer(x, 6) != y).any()


def test_gradients_are_slopes() -> None:
    x = golden_normal("x", (3, 2, 2, 5))
    check_gradients(lambda x: dropout(x, 0.25, seed=1, step=2), x, tolerance=1e-8)


@pytest.mark.parametrize("seed", [0, 1, SEED, 2**64 - 1, -1])
def test_seed_words_are_the_halves_of_the_seed(seed: int) -> None:
    low, high = (int(word) for word in seed_words(seed))
    assert low + (high << 32) == seed % 2**64


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: dropout(x, 1.0, seed=0, step=0), ValueError, r"p is 1.0, expected .* \[0, 1\)"),
        (lambda x: dropout(x, -0.1, seed=0, step=0), ValueError, "p is -0.1"),
        (
            lambda x: dropout(x, 0.5, seed=np.zeros(3, np.int32), step=0),
            ShapeError,
            "shape of seed",
        ),
        (lambda x: dropout(x[0, 0], 0.5, seed=0, step=0), ShapeError, r"shape of x is \(\)"),
        (lambda x: dropout(x.astype(int), 0.5, seed=0, step=0), TypeError, "dtype of x"),
    ],
)
def test_misuse_says_what_would_be_right(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call(np.ones((2, 3), np.float32))
