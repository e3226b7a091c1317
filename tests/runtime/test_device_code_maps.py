"""The source of kernels on maps, run on the processor, against the meaning of their operations."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.convolutions import launches_behind
from tests.emulation import maps as emulated
from tests.emulation.run import COMPILER, emulate
from tests.graph.meaning import MEANING
from tests.lowering import maps
from tests.lowering.maps import normals, poisoned, wide
from tests.lowering.native import assert_close

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")


@pytest.fixture(autouse=True)
def device_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "run", emulated.run)


def constants(x: np.ndarray) -> dict[str, np.ndarray]:
    c = x.shape[-1]
    gamma, beta = normals(3, np.float32, (c,), (c,))
    flat = x.reshape(-1, c).astype(np.float64)
    mean = flat.mean(0).astype(np.float32)
    inverse_std = (1 / np.sqrt(flat.var(0) + 1e-5)).astype(np.float32)
    return {"x": x, "gamma": gamma, "beta": beta, "mean": mean, "inverse_std": inverse_std}


def test_statistics_finished_from_sums_that_a_convolution_left() -> None:
    (y,) = normals(1, np.float16, (3, 5, 7, 24))
    rows, c = 105, 24
    flat = y.reshape(3, 35, c).astype(np.float32)
    partial = np.stack([flat.sum(1), (flat * flat).sum(1)], 1)
    prev = np.zeros(c, np.float32), np.ones(c, np.float32)
    results = [np.full(c, np.nan, np.float32) for _ in range(4)]
    sizes = {**maps.conv_sizes((3, 5, 7, 8), (c, 1, 1, 8), 1, 0), "type": 1, "y_type": 1}
    call = InPlaceCall(targets.CONV_FORWARD_STATISTICS, (), {**sizes, "partial_rows": 3})
    (finalise,) = launches_behind(call, summed=3)
    fields = [None, *prev, *results, partial, rows, c, 3, 0.1, 1e-5, 1]
    emulate(finalise, "BatchNormStatistics", "P" * 8 + "qqqffi", fields)
    given = {**wide({"x": y}), "prev_mean": 0.0, "prev_var": 1.0, "gamma": 1.0, "beta": 0.0}
    theirs = MEANING["batch_norm_forward"](given, {"momentum": 0.1, "eps": 1e-5}, {})
    for name, value in zip(("mean", "inverse_std", "next_mean", "next_var"), results, strict=True):
        assert_close(value, theirs[name], np.float32)


def test_statistics_of_more_rows_than_a_block_reads() -> None:
    (x,) = normals(1, np.float16, (3, 7, 11, 24))
    prev = {"mean": np.zeros(24, np.float32), "var": np.ones(24, np.float32)}
    ours = maps.statistics(x, prev, 0.1, 1e-5)
    given = {**wide({"x": x}), "prev_mean": 0.0, "prev_var": 1.0, "gamma": 1.0, "beta": 0.0}
    theirs = MEANING["batch_norm_forward"](given, {"momentum": 0.1, "eps": 1e-5}, {})
    for name, value in ours.items():
        assert_close(value, theirs[name], np.float32)


def test_norm_relu_and_max_pool_and_their_backward() -> None:
    (x,) = normals(2, np.float16, (2, 7, 6, 12))
    given, sizes = constants(x), maps.pool_sizes(x.shape, 3, 2, 1)
    params = {"activation": "relu", "kernel": 3, "stride": 2, "pad": 1}
    ours = maps.max_pool(given, sizes, "relu")
    theirs = MEANING["batch_norm_max_pool_forward"](wide(given), params, {})
    assert_close(ours["y"], theirs["y"], np.float16)
    (given["dy"],) = normals(4, np.float16, maps.pooled_shape(sizes))
    given["argmax"] = ours["argmax"]
    names = ("dx", "dgamma", "dbeta")
    found = maps.norm_backward(given, "relu", names, {**sizes, "argmax_bytes": 1})
    theirs = MEANING["batch_norm_max_pool_backward"](wide(given), params, {})
    for name in names:
        assert_close(found[name], theirs[name], np.float16)


@pytest.mark.parametrize(("normalised", "readers"), [(False, 1), (False, 2), (True, 2)])
def test_backward_of_an_add_that_leaves_its_gradient_for_the_second_pass(
    normalised: bool, readers: int
) -> None:
    shape = (2, 7, 6, 12)
    x, y, dy, shortcut, addend = normals(8, np.float16, *[shape] * 5)
    given = {**constants(x), "dy": dy, "gate": y}
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta", "dshortcut")
    if normalised:
        given |= {f"shortcut_{n}": v for n, v in constants(shortcut).items() if n != "x"}
        given["shortcut"] = shortcut
        names += ("dshortcut_gamma", "dshortcut_beta")
    if readers == 2:
        given["addend"] = addend
    found = maps.norm_backward(given, "relu", names)
    reads = {**wide(given), "y": y.astype(np.float64)}
    theirs = MEANING["batch_norm_add_backward"](reads, {"activation": "relu"}, {})
    theirs["dshortcut_beta"] = theirs["dbeta"]
    for name in names:
        assert_close(found[name], theirs[name], np.float16)


def test_an_addend_of_the_pixels_alone_that_a_strided_convolution_read() -> None:
    shape = (2, 7, 6, 12)
    x, y, dy, addend = normals(8, np.float16, *[shape] * 4)
    given = {**constants(x), "dy": dy, "gate": y}
    names = ("dx", "dgamma", "dbeta", "dshortcut")
    spread, small, grid = maps.on_a_grid(addend, 2)
    theirs = maps.norm_backward({**given, "addend": spread}, "relu", names)
    ours = maps.norm_backward({**given, "addend": small}, "relu", names, grid)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name], name)


@pytest.mark.parametrize(("normalised", "readers"), [(False, 1), (True, 2)])
def test_a_mask_of_bits_that_the_forward_leaves_for_the_backward(
    normalised: bool, readers: int
) -> None:
    shape = (2, 7, 6, 24)
    x, dy, shortcut, addend = normals(9, np.float16, *[shape] * 4)
    given = {**constants(x), "shortcut": shortcut, "dy": dy}
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta", "dshortcut")
    if normalised:
        given |= {f"shortcut_{n}": v for n, v in constants(shortcut).items() if n != "x"}
        names += ("dshortcut_gamma", "dshortcut_beta")
    if readers == 2:
        given["addend"] = addend
    params = {"activation": "relu"}
    ours = maps.apply(given, "relu", False, mask=True)
    theirs = MEANING["batch_norm_add_forward"](wide(given), params, {})
    assert_close(ours["y"], theirs["y"], np.float16)
    bits = np.packbits((ours["y"] > 0).reshape(-1, 8), axis=1, bitorder="little")
    np.testing.assert_array_equal(ours["mask"], bits.reshape(ours["mask"].shape))
    found = maps.norm_backward({**given, "mask": ours["mask"]}, "relu", names)
    reads = {**wide(given), "y": ours["y"].astype(np.float64)}
    theirs = MEANING["batch_norm_add_backward"](reads, params, {})
    theirs["dshortcut_beta"] = theirs["dbeta"]
    for name in names:
        assert_close(found[name], theirs[name], np.float16)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolution(stride: int) -> None:
    x, w = normals(5, np.float16, (2, 11, 9, 16), (16, 3, 3, 1))
    out = (2, maps.outputs(11, 3, stride, 1), maps.outputs(9, 3, stride, 1), 16)
    (dy,) = normals(6, np.float16, out)
    ours = maps.depthwise(x, w, dy, stride, 1)
    given, params = wide({"x": x, "w": w, "dy": dy}), {"stride": stride, "pad": 1}
    stem = "depthwise_conv"
    theirs = MEANING[f"{stem}_forward"](given, params, {})
    theirs |= MEANING[f"{stem}_backward_data"](given, params, {"dx": x.shape})
    theirs |= MEANING[f"{stem}_backward_weight"](given, params, {"dw": w.shape})
    for name, value in ours.items():
        assert_close(value, theirs[name], np.float16)


def test_pooled_gradient_of_a_last_layer() -> None:
    dy, w = normals(7, np.float16, (9, 70), (70, 24))
    sizes = {"n": 9, "pixels": 6, "c": 24, "k": 70, "type": 1}
    result = poisoned((9, 2, 3, 24), np.float16)
    (dx,) = emulated.run(targets.GAP_FC_BACKWARD_DATA, dy, w, result, **sizes)
    theirs = MEANING["gap_fc_backward_data"](wide({"dy": dy, "w": w}), {}, {"dx": dx.shape})
    assert_close(dx, theirs["dx"], np.float16)


@pytest.mark.parametrize(
    ("shape", "kernel", "activation"),
    [((2, 7, 6, 24), 2, "relu"), ((1, 6, 7, 8), 3, "silu"), ((2, 4, 4, 5), 2, None)],
)
def test_backward_of_windows_that_tile_the_map(
    shape: tuple[int, ...], kernel: int, activation: str | None
) -> None:
    (x,) = normals(11, np.float16, shape)
    given, sizes = constants(x), maps.pool_sizes(x.shape, kernel, kernel, 0)
    (given["dy"],) = normals(12, np.float16, maps.pooled_shape(sizes))
    winners = maps.max_pool(given, sizes, activation)["argmax"]
    names = ("dx", "dgamma", "dbeta")
    found = maps.norm_backward(given, activation, names, {**sizes, "argmax_bytes": 0})
    params = {"activation": activation, "kernel": kernel, "stride": kernel, "pad": 0}
    told = {**wide(given), "argmax": winners}
    theirs = MEANING["batch_norm_max_pool_backward"](told, params, {})
    for name in names:
        assert_close(found[name], theirs[name], np.float16)


def test_max_pool_of_halves_prefers_the_first_and_nan() -> None:
    """Zeros of either sign tie, and so do NaNs; the first in row-major order wins."""
    rng = np.random.default_rng(7)
    x = rng.choice(np.array([-2.0, -0.0, 0.0, 1.0, np.nan], np.float16), (2, 9, 7, 8))
    sizes = maps.pool_sizes(x.shape, 3, 2, 1)
    ours = maps.max_pool({"x": x}, sizes)
    params = {"kernel": 3, "stride": 2, "pad": 1}
    theirs = MEANING["max_pool_forward"](wide({"x": x}), params, {})
    np.testing.assert_array_equal(ours["y"], theirs["y"])
    np.testing.assert_array_equal(ours["argmax"], theirs["argmax"])


def test_gradient_of_a_pooled_layer_is_spread_over_its_pixels() -> None:
    n, pixels, c, k = 70, 3, 72, 40
    dy, w = normals(8, np.float16, (n, k), (k, c))
    sizes = {"n": n, "pixels": pixels, "c": c, "k": k, "type": 1}
    target = targets.GAP_FC_BACKWARD_DATA
    (dx,) = emulated.run(target, dy, w, poisoned((n, pixels, c), np.float16), **sizes)
    theirs = dy.astype(np.float64) @ w.astype(np.float64) / pixels
    assert_close(dx, np.repeat(theirs[:, None], pixels, axis=1), np.float16)
