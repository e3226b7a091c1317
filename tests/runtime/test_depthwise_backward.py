"""The fused backward of a depthwise convolution: the host's, and device code on a processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.runtime import library
from tests.emulation import maps as emulated
from tests.emulation.run import COMPILER
from tests.graph.meaning import MEANING
from tests.lowering import maps
from tests.lowering.maps import normals, wide
from tests.lowering.native import assert_close, relative_error

Arrays = dict[str, np.ndarray]

# n, h, w, c, kernel, stride, pad
SHAPES = [
    (2, 7, 9, 6, 3, 1, 1),
    (1, 30, 8, 4, 3, 1, 1),
    (3, 5, 12, 8, 3, 2, 1),
    (2, 8, 7, 10, 3, 2, 1),
    (1, 6, 5, 2, 3, 1, 0),
    (2, 9, 11, 4, 5, 2, 2),
    (1, 2, 3, 70, 3, 1, 1),
]
NORMS = [(False, None, None), (True, "relu6", "relu6"), (True, None, "relu"), (True, "relu", None)]


def with_norm(name: str, map_: np.ndarray, seed: int) -> Arrays:
    """A norm's constants, so that its activation cuts off a good part at both ends."""
    c = map_.shape[-1]
    gamma, beta = normals(seed, np.float32, (c,), (c,))
    flat = map_.reshape(-1, c).astype(np.float64)
    mean, inverse_std = flat.mean(0), 1 / np.sqrt(flat.var(0) + 1e-5)
    values = {"gamma": 3 * gamma, "beta": 3 + beta, "mean": mean, "inverse_std": inverse_std}
    return {f"{name}_{key}": value.astype(np.float32) for key, value in values.items()}


def norm_of(given: Any, name: str) -> Any:
    constants = {key: given[f"{name}_{key}"] for key in ("gamma", "beta", "mean", "inverse_std")}
    return {"x": given[name], **constants}


def normalised(given: Any, name: str) -> np.ndarray:
    """norm(x) of either side in double, rounded as an activation's input is."""
    z = MEANING["batch_norm_apply"](norm_of(wide(given), name), {}, {})["y"]
    return z.astype(np.float16).astype(np.float64)


def slope(z: np.ndarray, activation: str | None) -> np.ndarray:
    last = {None: np.inf, "relu": np.inf, "relu6": 6.0}[activation]
    return ((z > (-np.inf if activation is None else 0)) & (z < last)).astype(np.float64)


def output_gradient(given: Arrays, activation: str | None) -> Arrays:
    """The gradient of the convolution's own output, and dgamma and dbeta of the norm behind it."""
    dz = wide(given)["dy"] * slope(normalised(given, "y"), activation)
    return MEANING["batch_norm_backward"]({**norm_of(wide(given), "y"), "dy": dz}, {}, {})


def meaning(given: Arrays, stride: int, pad: int, y: str | None, x: str | None) -> Arrays:
    """The same by the single operations, in double."""
    read, params, is_normed = wide(given), {"stride": stride, "pad": pad}, "y_mean" in given
    before = read["x"]
    if is_normed:
        read["dy"] = output_gradient(given, y)["dx"]
        z = normalised(given, "x")
        read["x"] = {None: z, "relu": z.clip(0), "relu6": z.clip(0, 6)}[x]
    found = MEANING["depthwise_conv_backward_weight"](read, params, {"dw": given["w"].shape})
    found |= MEANING["depthwise_conv_backward_data"](read, params, {"dx": before.shape})
    if is_normed:
        found["dx"] = found["dx"] * slope(z, x)
        sums = found["dx"], found["dx"] * (before - read["x_mean"])
        found |= {n: s.sum((0, 1, 2)) for n, s in zip(("sum", "product"), sums, strict=True)}
    return found


def case(shape: tuple[int, ...], normed: bool, y_activation: str | None) -> Arrays:
    n, h, w, c, kernel, stride, pad = shape
    out = (n, maps.outputs(h, kernel, stride, pad), maps.outputs(w, kernel, stride, pad), c)
    x, weight = normals(h + c, np.float16, (n, h, w, c), (c, kernel, kernel, 1))
    dy, y = normals(7, np.float16, out, out)
    given = {"x": x, "w": weight, "dy": dy}
    if normed:
        given |= {"y": y, **with_norm("y", y, 3), **with_norm("x", x, 4)}
        sums = output_gradient(given, y_activation)
        given |= {name: sums[name].astype(np.float32) for name in ("dgamma", "dbeta")}
    return given


def check(shape: tuple[int, ...], normed: bool, y: str | None, x: str | None) -> None:
    given, (stride, pad) = case(shape, normed, y), shape[5:]
    ours = maps.depthwise_backward(given, stride, pad, y, x)
    theirs = meaning(given, stride, pad, y, x)
    partial = ours.pop("sums", None)
    if partial is not None:
        sums = np.asarray(partial, np.float64).sum(0).reshape(2, -1)
        ours |= {"sum": sums[0], "product": sums[1]}
        check_the_norm_before(given, np.asarray(ours["dx"]), np.asarray(partial))
    assert ours.keys() == theirs.keys()
    size = np.abs(theirs["dx"]).sum((0, 1, 2))
    for name, value in theirs.items():
        if name in ("dx", "dw"):
            assert_close(ours[name], value, np.float16)
        else:  # sums that cancel
            assert relative_error(ours[name] + size, value + size) <= 2e-3, name
    again = maps.depthwise_backward(given, stride, pad, y, x)
    for name in ("dx", "dw"):
        np.testing.assert_array_equal(np.asarray(again[name]), np.asarray(ours[name]), err_msg=name)


def check_the_norm_before(given: Arrays, dz: np.ndarray, sums: np.ndarray) -> None:
    """The second pass of its backward, from the sums that are left for it."""
    norm = {**norm_of(given, "x"), "dy": dz}
    names = ("dx", "dgamma", "dbeta")
    found = maps.norm_backward(norm, None, names, left=sums)
    theirs = MEANING["batch_norm_backward"](wide(norm), {}, {})
    size = np.abs(wide(norm)["dy"]).sum((0, 1, 2))
    assert_close(found["dx"], theirs["dx"], np.float16)
    for name in ("dgamma", "dbeta"):
        assert relative_error(np.asarray(found[name]) + size, theirs[name] + size) <= 2e-3, name


@pytest.mark.skipif(not library.status().custom_calls, reason="no native library")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("normed", "y", "x"), NORMS)
def test_natively(shape: tuple[int, ...], normed: bool, y: str | None, x: str | None) -> None:
    check(shape, normed, y, x)


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
@pytest.mark.parametrize(
    ("shape", "normed", "y", "x"),
    [
        ((2, 9, 7, 6, 3, 1, 1), False, None, None),
        ((2, 7, 9, 6, 3, 1, 1), True, "relu6", "relu6"),
        ((1, 31, 8, 70, 3, 1, 1), True, "relu", None),
        ((3, 8, 7, 6, 3, 2, 1), True, None, "relu6"),
    ],
)
def test_device_code(
    shape: tuple[int, ...], normed: bool, y: str | None, x: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(maps, "run", emulated.run)
    check(shape, normed, y, x)
