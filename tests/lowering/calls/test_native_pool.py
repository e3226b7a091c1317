"""Pools, adds and channel padding of the native library against their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS, type_number
from renaissance.runtime import library
from tests.graph.meaning import ACT, MEANING
from tests.lowering.maps import max_pool, normals, poisoned, pool_sizes, pooled_shape, wide
from tests.lowering.native import assert_close, run

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

DTYPES = [np.float32, np.float16]
WINDOWS = [
    ((1, 1, 1, 1), (1, 1, 0)),
    ((2, 8, 8, 8), (2, 2, 0)),
    ((3, 7, 9, 16), (3, 2, 1)),
    ((1, 5, 6, 5), (3, 1, 1)),
    ((2, 11, 10, 6), (3, 2, 0)),
    ((1, 9, 9, 3), (5, 3, 2)),
    ((1, 18, 17, 2), (17, 1, 8)),
]


def parameters(window: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("kernel", "stride", "pad"), window, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "window"), WINDOWS)
def test_max_pool(shape: tuple[int, ...], window: tuple[int, int, int], dtype: Any) -> None:
    """Few distinct values, so that ties decide: the first in row-major order wins."""
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(-3, 4, shape).astype(dtype)
    sizes, params = pool_sizes(shape, *window), parameters(window)
    ours = max_pool({"x": x}, sizes)
    theirs = MEANING["max_pool_forward"](wide({"x": x}), params, {})
    np.testing.assert_array_equal(np.asarray(ours["y"]), theirs["y"])
    np.testing.assert_array_equal(np.asarray(ours["argmax"]), theirs["argmax"])
    (dy,) = normals(1, dtype, pooled_shape(sizes))
    argmax = np.asarray(ours["argmax"])
    (dx,) = run(
        targets.MAX_POOL_BACKWARD, dy, argmax, poisoned(shape, dtype), **sizes,
        type=type_number(dtype), argmax_bytes=argmax.itemsize,
    )  # fmt: skip
    reads = {**wide({"dy": dy}), "argmax": argmax}
    assert_close(dx, MEANING["max_pool_backward"](reads, params, {"dx": shape})["dx"], dtype)


def test_max_pool_hands_nan_on_and_never_prefers_padding() -> None:
    x = np.full((1, 3, 3, 1), -5.0, np.float32)
    x[0, 1, 1] = np.nan
    x[0, 2, 2] = 7.0
    y = np.asarray(max_pool({"x": x}, pool_sizes(x.shape, 2, 2, 1))["y"])[0, :, :, 0]
    assert y[0, 0] == -5.0 and y[0, 1] == -5.0 and np.isnan(y[1, 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "window"), WINDOWS)
def test_average_pool_counts_real_pixels_only(
    shape: tuple[int, ...], window: tuple[int, int, int], dtype: Any
) -> None:
    sizes, params = pool_sizes(shape, *window), parameters(window)
    x, dy = normals(2, dtype, shape, pooled_shape(sizes))
    number = type_number(dtype)
    result = poisoned(dy.shape, dtype)
    (y,) = run(targets.AVERAGE_POOL_FORWARD, x, result, **sizes, type=number)
    assert_close(y, MEANING["average_pool_forward"](wide({"x": x}), params, {})["y"], dtype)
    result = poisoned(shape, dtype)
    (dx,) = run(targets.AVERAGE_POOL_BACKWARD, dy, result, **sizes, type=number)
    reads, shapes = wide({"dy": dy}), {"dx": shape}
    assert_close(dx, MEANING["average_pool_backward"](reads, params, shapes)["dx"], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 7, 7, 40), (2, 5, 3, 9), (9, 4, 4, 300)])
def test_global_average_pool_and_the_layer_behind_it(shape: tuple[int, ...], dtype: Any) -> None:
    n, h, w, c = shape
    x, dy, weight, dz = normals(3, dtype, shape, (n, 1, 1, c), (70, c), (n, 70))
    sizes = {"n": n, "pixels": h * w, "c": c, "type": type_number(dtype)}
    for y_dtype in {dtype, np.float32}:
        (y,) = run(
            targets.GLOBAL_AVERAGE_POOL_FORWARD, x, poisoned((n, c), y_dtype), **sizes,
            y_type=type_number(y_dtype),
        )  # fmt: skip
        assert_close(y, x.astype(np.float64).mean((1, 2)), dtype)
    (dx,) = run(targets.GLOBAL_AVERAGE_POOL_BACKWARD, dy, poisoned(shape, dtype), **sizes)
    meaning = MEANING["global_average_pool_backward"]
    assert_close(dx, meaning(wide({"dy": dy}), {}, {"dx": shape})["dx"], dtype)
    result = poisoned(shape, dtype)
    (dx,) = run(targets.GAP_FC_BACKWARD_DATA, dz, weight, result, **sizes, k=70)
    theirs = MEANING["gap_fc_backward_data"](wide({"dy": dz, "w": weight}), {}, {"dx": shape})
    assert_close(dx, theirs["dx"], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
@pytest.mark.parametrize("size", [1, 7, 4099])
def test_add(size: int, activation: str | None, dtype: Any) -> None:
    a, b = normals(size, dtype, (size,), (size,))
    sizes = {"count": size, "type": type_number(dtype)}
    sizes["activation"] = ACTIVATION_NUMBERS[activation]
    y, z = run(
        targets.ADD_FORWARD, a, b, poisoned((size,), dtype), poisoned((size,), dtype), **sizes
    )
    np.testing.assert_array_equal(np.asarray(z), a + b)
    assert_close(y, ACT[activation](np.asarray(z, np.float64)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("x_channels", "y_channels"), [(3, 8), (6, 8), (8, 3), (5, 7), (17, 24)])
def test_channel_padding(x_channels: int, y_channels: int, dtype: Any) -> None:
    (x,) = normals(1, dtype, (2, 3, 5, x_channels))
    (y,) = run(
        targets.CHANNEL_PADDING, x, poisoned((2, 3, 5, y_channels), dtype), pixels=30,
        x_channels=x_channels, y_channels=y_channels, type=type_number(dtype),
    )  # fmt: skip
    kept = min(x_channels, y_channels)
    np.testing.assert_array_equal(np.asarray(y)[..., :kept], x[..., :kept])
    assert not np.asarray(y)[..., kept:].any()
