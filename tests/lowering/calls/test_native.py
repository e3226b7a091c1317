"""Every host twin against the reference lowering or the defining formula, called functionally."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.loss import CrossEntropy
from renaissance.lowering import activation, dropout, fc, loss
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import (
    ACTIVATION_NUMBERS,
    GATED_BY_INPUT,
    Updated,
    type_number,
)
from renaissance.runtime import library
from tests.lowering.native import assert_close, run, struct

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

DTYPES = [np.float32, np.float16]
FC_CASES = [(1, 1, 1, None), (3, 5, 7, "relu"), (17, 33, 10, "silu"), (5, 129, 65, "tanh")]
ACTIVATIONS = [name for name in ACTIVATION_NUMBERS if name]


def randoms(seed: int, dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "c", "k", "kind"), FC_CASES)
def test_fc_forward(n: int, c: int, k: int, dtype: Any, kind: str | None) -> None:
    x, w = randoms(n * c, dtype, (n, c), (k, c))
    (bias,) = randoms(k, np.float32, (k,))
    y, z = run(
        targets.FC_FORWARD, x, w, bias, struct((n, k), dtype), struct((n, k), dtype),
        n=n, c=c, k=k, type=type_number(dtype), y_type=type_number(dtype),
        activation=ACTIVATION_NUMBERS[kind],
    )  # fmt: skip
    reference = fc.fc(x, w, bias)
    assert_close(z, reference, dtype)
    assert_close(y, getattr(activation, kind)(reference) if kind else reference, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "c", "k", "kind"), FC_CASES)
def test_fc_backward_with_the_derivative_of_the_activation_before_it(
    n: int, c: int, k: int, dtype: Any, kind: str | None
) -> None:
    before, w, dy = randoms(n + c + k, dtype, (n, c), (k, c), (n, k))
    bias = np.zeros(k, np.float32)

    def layer(before: Any, w: Any, bias: Any) -> Any:
        return fc.fc(getattr(activation, kind)(before) if kind else before, w, bias)

    x = getattr(activation, kind)(before) if kind else before
    gate = None if kind is None else (before if kind in GATED_BY_INPUT else x)
    flag = np.zeros(1, np.int32)
    dx, dw, dbias, flag = run(
        targets.FC_BACKWARD, dy, x, w, gate, struct((n, c), dtype), struct((k, c), dtype),
        struct((k,), np.float32), Updated(flag),
        n=n, c=c, k=k, type=type_number(dtype), activation=ACTIVATION_NUMBERS[kind],
    )  # fmt: skip
    reference = jax.vjp(layer, before, w, bias)[1](dy)
    for ours, theirs in zip((dx, dw, dbias), reference, strict=True):
        assert_close(ours, theirs, dtype)
    assert flag[0] == 0


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_fc_backward_raises_the_flag_when_a_gradient_is_not_finite(value: float) -> None:
    x, w = randoms(1, np.float32, (4, 3), (2, 3))
    dy = np.full((4, 2), 1.0, np.float32)
    dy[2, 1] = value
    x[2] = 10.0
    flag = run(
        targets.FC_BACKWARD, dy, x, w, None, None, struct((2, 3), np.float32),
        struct((2,), np.float32), Updated(np.zeros(1, np.int32)),
        n=4, c=3, k=2, type=0, activation=0,
    )[-1]  # fmt: skip
    assert flag[0] == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_and_their_derivatives(kind: str, dtype: Any) -> None:
    edges = np.array([0, -0.0, 6, -3, 3, 1e-4, -1e-4, 20, -20], dtype)
    x = np.concatenate(
        [edges, *randoms(2, dtype, (1000,)), *[r * 5 for r in randoms(3, dtype, (99,))]]
    )
    (dy,) = randoms(4, dtype, x.shape)
    function = getattr(activation, kind)
    sizes = {"count": x.size, "type": type_number(dtype), "activation": ACTIVATION_NUMBERS[kind]}
    (y,) = run(targets.ACTIVATION_FORWARD, x, struct(x.shape, dtype), **sizes)
    reference, pull = jax.vjp(function, x)
    assert_close(y, reference, dtype)
    gate = x if kind in GATED_BY_INPUT else reference
    (dx,) = run(targets.ACTIVATION_BACKWARD, dy, gate, struct(x.shape, dtype), **sizes)
    assert_close(dx, pull(dy)[0], dtype)


def run_softmax(z: Any, labels: Any, smoothing: float, scale: float) -> list[np.ndarray]:
    n, k = z.shape
    one = struct((1,), np.float32)
    return run(
        targets.SOFTMAX_CROSS_ENTROPY, z, labels, np.array([scale], np.float32),
        struct(z.shape, z.dtype), struct((n,), np.int32), one, one, one, one,
        struct((3 * n,), np.float32), n=n, k=k, smoothing=smoothing, type=type_number(z.dtype),
        gradient_type=type_number(z.dtype),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 3), (33, 1000)])
def test_softmax_cross_entropy(n: int, k: int, smoothing: float, dtype: Any) -> None:
    (z,) = randoms(n * k, dtype, (n, k))
    z[0] = 1.0  # a tie of all classes
    labels = np.random.default_rng(n).integers(0, k, n).astype(np.int32)
    dz, predicted, total, top1, top5, count, _ = run_softmax(z, labels, smoothing, 64.0)
    config, wide = CrossEntropy(smoothing), z.astype(np.float64)
    np.testing.assert_allclose(
        total[0], config.row_losses(wide, labels).sum(), rtol=1e-5, atol=1e-5
    )
    assert_close(dz, config.logits_gradient(wide, labels) * 64.0 / n, dtype)
    assert top1[0] == loss.top_k_hits(z, labels, 1).sum()
    assert top5[0] == loss.top_k_hits(z, labels, 5).sum()
    assert count[0] == n
    np.testing.assert_array_equal(predicted, loss.predicted_labels(z))


def test_softmax_cross_entropy_gives_the_published_value() -> None:
    z = np.array([[2.0, 1.0, 0.1]], np.float32)
    assert run_softmax(z, np.zeros(1, np.int32), 0.1, 1.0)[2][0] == pytest.approx(
        0.513697, abs=1e-6
    )


def test_a_row_with_nan_is_a_miss_and_makes_the_loss_nan() -> None:
    z = np.array([[0.0, np.nan, 1.0], [5.0, 1.0, 1.0]], np.float32)
    _, predicted, total, top1, top5, _, _ = run_softmax(z, np.array([2, 0], np.int32), 0.0, 1.0)
    assert np.isnan(total[0]) and top1[0] == 1 and top5[0] == 1
    np.testing.assert_array_equal(predicted, [1, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "elements"), [(1, 1), (3, 5), (7, 1023)])
def test_dropout_draws_the_reference_mask(rows: int, elements: int, dtype: Any) -> None:
    x, dy = randoms(rows, dtype, (rows, elements), (rows, elements))
    seed = np.array([0x1234, -5], np.int32)
    y, mask = run(
        targets.DROPOUT_FORWARD, x, seed, np.array([7], np.int32), np.array([2], np.int32),
        struct(x.shape, dtype), struct(x.shape, np.uint8),
        rows=rows, elements=elements, layer=3, p=0.3, type=type_number(dtype),
    )  # fmt: skip

    def reference(x: Any) -> Any:
        return dropout.dropout(x, 0.3, seed=seed.view(np.uint32), step=9, layer=3)

    expected, pull = jax.vjp(reference, x)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(expected))
    (dx,) = run(
        targets.DROPOUT_BACKWARD, dy, mask, struct(x.shape, dtype),
        count=x.size, p=0.3, type=type_number(dtype),
    )  # fmt: skip
    assert_close(dx, pull(dy)[0], dtype)


def test_casts_round_to_nearest_even_over_the_whole_range_of_half() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]
    (wide,) = run(
        targets.CAST, halves, struct(halves.shape, np.float32),
        count=halves.size, from_type=1, to_type=0,
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(wide), halves.astype(np.float32))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    near = (rng.integers(0x37, 0x48, 50_000, dtype=np.uint32) << 24) | (bits[:50_000] >> 8)
    values = np.concatenate([bits, near & 0xFFFFF000, near]).view(np.float32)
    (narrow,) = run(
        targets.CAST, values, struct(values.shape, np.float16),
        count=values.size, from_type=0, to_type=1,
    )  # fmt: skip
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.asarray(narrow), values.astype(np.float16))


@pytest.mark.parametrize("size", [1, 255, 4097])
def test_clear_and_copy(size: int) -> None:
    data = np.random.default_rng(size).integers(1, 255, size, dtype=np.uint8)
    (cleared,) = run(targets.CLEAR, Updated(data), bytes=size)
    assert not np.asarray(cleared).any()
    (copied,) = run(targets.COPY, data, struct((size,), np.uint8), None, bytes=size)
    np.testing.assert_array_equal(np.asarray(copied), data)


def test_in_place_attributes_are_refused_where_a_buffer_was_not_aliased() -> None:
    bank = jnp.zeros(256, jnp.uint8)
    call = jax.ffi.ffi_call(targets.CLEAR.name, (jax.ShapeDtypeStruct((256,), jnp.uint8),))
    at = np.array([1, 0], np.int64)
    with pytest.raises(Exception, match="bank 0 of the call is not aliased"):
        jax.block_until_ready(call(bank, at=at, in_place=np.int64(1), bytes=np.int64(256)))
