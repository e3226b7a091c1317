"""Batch norm of the native library, alone and joined with add and pool, against its meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS, GATED_BY_INPUT, type_number
from renaissance.runtime import library
from tests.graph.meaning import ACT, MEANING
from tests.lowering.maps import (
    apply,
    max_pool,
    norm_backward,
    normals,
    on_a_grid,
    poisoned,
    pool_sizes,
    pooled_shape,
    statistics,
    wide,
)
from tests.lowering.native import assert_close, on_device, relative_error, run

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

DTYPES = [np.float32, np.float16]
SHAPES = [(9, 1, 1, 3), (3, 5, 7, 8), (1, 9, 5, 6), (4, 6, 6, 33), (2, 40, 17, 16)]


def operands(seed: int, shape: tuple[int, ...], dtype: Any, prefix: str = "") -> dict[str, Any]:
    """A map and the constants of a norm over it."""
    c = shape[-1]
    x, gamma, beta = normals(seed, np.float32, shape, (c,), (c,))
    x = (x * 2 + np.linspace(-3, 3, c)).astype(dtype)
    flat = x.reshape(-1, c).astype(np.float64)
    mean = flat.mean(0).astype(np.float32)
    inverse_std = (1 / np.sqrt(flat.var(0) + 1e-5)).astype(np.float32)
    named = {"gamma": gamma + 1.5, "beta": beta, "mean": mean, "inverse_std": inverse_std}
    return {"shortcut" if prefix else "x": x, **{f"{prefix}{k}": v for k, v in named.items()}}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 1, 5)])
def test_statistics(shape: tuple[int, ...], dtype: Any) -> None:
    x = operands(1, shape, dtype)["x"]
    mean, var = normals(2, np.float32, (shape[-1],), (shape[-1],))
    ours = statistics(x, {"mean": mean, "var": var**2}, 0.1, 1e-5)
    given = wide({"y": x, "prev_mean": mean, "prev_var": var**2})
    params = {"momentum": 0.1, "eps": 1e-5}
    theirs = MEANING["batch_norm_forward"](
        {**given, "x": given["y"], "gamma": 1.0, "beta": 0.0}, params, {}
    )
    for name, value in ours.items():
        assert_close(value, theirs[name], np.float32)


def test_the_variance_of_values_far_from_zero_does_not_cancel() -> None:
    rng = np.random.default_rng(0)
    x = (1e4 + 0.1 * rng.standard_normal((64, 32, 32, 1))).astype(np.float32)
    zero = {"mean": np.zeros(1, np.float32), "var": np.zeros(1, np.float32)}
    ours = statistics(x, zero, 1.0, 1e-5)
    assert float(ours["next_var"][0]) == pytest.approx(0.00999, rel=0.01)


def test_the_running_variance_is_unbiased() -> None:
    x = np.repeat(np.array([1, 2, 3, 4], np.float32), 36).reshape(4, 6, 6, 1)
    one = {"mean": np.zeros(1, np.float32), "var": np.ones(1, np.float32)}
    assert float(statistics(x, one, 0.1, 1e-5)["next_var"][0]) == pytest.approx(1.025874, abs=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("activation", "kind"),
    [(None, 0), ("relu", 1), ("relu6", 2), ("elu", 1), ("tanh", 0), ("silu", 2)],
)
@pytest.mark.parametrize("readers", [1, 2])
def test_forward_and_backward_with_a_shortcut(
    activation: str | None, kind: int, shape: tuple[int, ...], dtype: Any, readers: int
) -> None:
    """``kind``: no shortcut, one as it is, one that is normalised in the same pass. With two
    readers of the output its gradient comes in two parts."""
    given = operands(3, shape, dtype)
    if kind == 1:
        (given["shortcut"],) = normals(4, dtype, shape)
    if kind == 2:
        given |= operands(4, shape, dtype, "shortcut_")
    keeps_z = activation in GATED_BY_INPUT and kind > 0
    ours = apply(given, activation, keeps_z)
    params = {"activation": activation}
    reads = wide(given)
    meaning = MEANING["batch_norm_add_forward" if kind else "batch_norm_apply"]
    theirs = meaning(reads, params, {})
    for name, value in ours.items():
        assert_close(value, theirs[name], dtype)
    (given["dy"],) = normals(5, dtype, shape)
    if readers == 2:
        (given["addend"],) = normals(8, dtype, shape)
    reads = wide(given)
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta")
    if kind:
        names += ("dshortcut",)
        gate = "z" if activation in GATED_BY_INPUT else "y"
        given["gate"] = np.asarray(ours[gate])
        reads[gate] = np.asarray(ours[gate], np.float64)
        theirs = MEANING["batch_norm_add_backward"](reads, params, {})
        if kind == 2:
            names += ("dshortcut_gamma", "dshortcut_beta")
            theirs["dshortcut_beta"] = theirs["dbeta"]
    else:
        theirs = MEANING["batch_norm_backward"](reads, params, {})
    found = norm_backward(given, activation, names)
    # Sums of few values of both signs lose digits that the tolerance of a map does not allow for.
    for name in names:
        limit = 2e-5 if dtype == np.float32 else 4e-3
        assert relative_error(found[name], theirs[name]) <= limit, name


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[4]])
@pytest.mark.parametrize("activation", ["relu", "relu6"])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_mask_of_bits_says_what_the_output_says(
    kind: int, readers: int, activation: str, shape: tuple[int, ...]
) -> None:
    given = operands(3, shape, np.float16)
    if kind == 1:
        (given["shortcut"],) = normals(4, np.float16, shape)
    if kind == 2:
        given |= operands(4, shape, np.float16, "shortcut_")
    ours = apply(given, activation, False, mask=True)
    y = np.asarray(ours["y"])
    np.testing.assert_array_equal(y, apply(given, activation, False)["y"])
    is_open = (y > 0) & (y < 6) if activation == "relu6" else y > 0
    bits = np.packbits(is_open.reshape(-1, 8), axis=1, bitorder="little").reshape(
        ours["mask"].shape
    )
    np.testing.assert_array_equal(ours["mask"], bits)
    (given["dy"],) = normals(5, np.float16, shape)
    if readers == 2:
        (given["addend"],) = normals(8, np.float16, shape)
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta")
    names += ("dshortcut",) if kind else ()
    names += ("dshortcut_gamma", "dshortcut_beta") if kind == 2 else ()
    by_bits = norm_backward({**given, "mask": bits}, activation, names)
    by_output = norm_backward({**given, "gate": y}, activation, names)
    limit = 2e-3 if on_device() else 0.0  # passes may be cut up otherwise on the device
    for name in names:
        assert relative_error(by_bits[name], by_output[name]) <= limit, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "stride"), [((2, 7, 6, 8), 2), ((1, 5, 8, 12), 3)])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_an_addend_may_be_the_pixels_alone_that_a_strided_convolution_read(
    kind: int, shape: tuple[int, ...], stride: int, dtype: Any
) -> None:
    given = operands(3, shape, dtype)
    given["dy"], addend = normals(5, dtype, shape, shape)
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta")
    if kind:
        (given["gate"],) = normals(4, dtype, shape)
        names += ("dshortcut",)
    if kind == 2:
        given |= operands(4, shape, dtype, "shortcut_")
        names += ("dshortcut_gamma", "dshortcut_beta")
    spread, small, grid = on_a_grid(addend, stride)
    theirs = norm_backward({**given, "addend": spread}, "relu", names)
    ours = norm_backward({**given, "addend": small}, "relu", names, grid)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name], name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "window"),
    [((2, 7, 9, 8), (3, 2, 1)), ((1, 6, 6, 5), (2, 2, 0)), ((1, 5, 4, 3), (3, 1, 1))],
)
def test_a_max_pool_joined_with_the_norm_before_it(
    shape: tuple[int, ...], window: tuple[int, int, int], dtype: Any
) -> None:
    given, sizes = operands(6, shape, dtype), pool_sizes(shape, *window)
    params = {"activation": "relu", **dict(zip(("kernel", "stride", "pad"), window, strict=True))}
    ours = max_pool(given, sizes, "relu")
    theirs = MEANING["batch_norm_max_pool_forward"](wide(given), params, {})
    assert_close(ours["y"], theirs["y"], dtype)
    (given["dy"],) = normals(7, dtype, pooled_shape(sizes))
    given["argmax"] = np.asarray(ours["argmax"])
    pool = {**sizes, "argmax_bytes": 1}
    names = ("dx", "dgamma", "dbeta")
    found = norm_backward(given, "relu", names, pool)
    theirs = MEANING["batch_norm_max_pool_backward"](wide(given), params, {})
    for name in names:
        limit = 2e-5 if dtype == np.float32 else 4e-3
        assert relative_error(found[name], theirs[name]) <= limit, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu"])
@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((2, 6, 8, 8), 2), ((1, 7, 5, 12), 2), ((2, 8, 7, 5), 3), ((3, 2, 2, 1), 2)],
)
def test_winners_that_nobody_stored_are_found_again(
    shape: tuple[int, ...], kernel: int, activation: str | None, dtype: Any
) -> None:
    given, sizes = operands(16, shape, dtype), pool_sizes(shape, kernel, kernel, 0)
    (given["dy"],) = normals(17, dtype, pooled_shape(sizes))
    names, pool = ("dx", "dgamma", "dbeta"), {**sizes, "argmax_bytes": 0}
    found = norm_backward(given, activation, names, pool)
    winners = np.asarray(max_pool(given, sizes, activation)["argmax"])
    params = {"activation": activation, "kernel": kernel, "stride": kernel, "pad": 0}
    told = {**wide(given), "argmax": winners}
    theirs = MEANING["batch_norm_max_pool_backward"](told, params, {})
    for name in names:
        limit = 2e-5 if dtype == np.float32 else 4e-3
        assert relative_error(found[name], theirs[name]) <= limit, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu6"])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_the_affine_map_of_inference(
    shape: tuple[int, ...], activation: str | None, dtype: Any
) -> None:
    c = shape[-1]
    given = operands(8, shape, dtype)
    var = np.abs(given["mean"]) + 0.5
    vector = poisoned((c,), np.float32)
    constants = (given["gamma"], given["beta"], given["mean"], var)
    scale, bias = run(targets.BATCH_NORM_FOLD, *constants, vector, vector, c=c, eps=1e-5)
    folded = MEANING["batch_norm_fold"](wide({**given, "var": var}), {"eps": 1e-5}, {})
    assert_close(scale, folded["scale"], np.float32)
    assert_close(bias, folded["bias"], np.float32)
    (shortcut,) = normals(9, dtype, shape)
    for other in (None, shortcut):
        (y,) = run(
            targets.AFFINE_FORWARD, given["x"], scale, bias, other, poisoned(shape, dtype),
            rows=given["x"].size // c, c=c, type=type_number(dtype),
            activation=ACTIVATION_NUMBERS[activation],
        )  # fmt: skip
        z = wide(given)["x"] * folded["scale"] + folded["bias"]
        z = z if other is None else z + other.astype(np.float64)
        assert_close(y, ACT[activation](z), dtype)
