"""Convolutions of the native library against their meaning in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Convolution, Target
from renaissance.lowering.launches.convolutions import convolution_of, launches_behind
from renaissance.runtime import library
from tests.graph.meaning import MEANING
from tests.lowering.maps import (
    WORKSPACE_BYTES,
    conv,
    conv_sizes,
    conv_statistics,
    depthwise,
    normals,
    outputs,
    poisoned,
    wide,
    workspace,
)
from tests.lowering.native import assert_close, relative_error, run

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

DTYPES = [np.float32, np.float16]
# n, h, w, c, k, kernel, stride, pad, groups
DENSE = [
    (1, 1, 1, 1, 1, 1, 1, 0, 1),
    (1, 5, 7, 3, 5, 3, 1, 1, 1),
    (2, 9, 8, 4, 8, 3, 2, 1, 1),
    (3, 7, 5, 9, 6, 1, 1, 0, 1),
    (2, 8, 7, 5, 3, 1, 2, 0, 1),
    (1, 15, 13, 3, 10, 7, 2, 3, 1),
    (2, 11, 11, 1, 6, 5, 1, 2, 1),
    (1, 14, 11, 2, 7, 5, 3, 0, 1),
    (1, 3, 3, 4, 4, 5, 1, 2, 1),
    (2, 6, 5, 6, 9, 3, 1, 1, 3),
    (1, 7, 9, 8, 12, 3, 2, 1, 4),
]
DEPTHWISE = [
    (1, 1, 1, 1, 3, 1, 1),
    (2, 7, 9, 5, 3, 1, 1),
    (1, 8, 8, 24, 3, 2, 1),
    (3, 7, 5, 16, 3, 2, 1),
    (2, 9, 6, 12, 5, 1, 2),
    (1, 10, 11, 33, 5, 2, 0),
    (1, 13, 17, 8, 3, 3, 1),
    (5, 12, 12, 40, 3, 1, 1),
]


def check(
    ours_of: Any, stem: str, x: Any, w: Any, shape: tuple[int, ...], params: dict[str, int]
) -> None:
    """y, dx and dw as the meaning says, and the same bits again."""
    (dy,) = normals(5, x.dtype, shape)
    ours = ours_of(x, w, dy, params["stride"], params["pad"])
    given = wide({"x": x, "w": w, "dy": dy})
    theirs = {
        **MEANING[f"{stem}_forward"](given, params, {}),
        **MEANING[f"{stem}_backward_data"](given, params, {"dx": x.shape}),
        **MEANING[f"{stem}_backward_weight"](given, params, {"dw": w.shape}),
    }
    for name, value in theirs.items():
        assert_close(ours[name], value, x.dtype)
    for name, value in ours_of(x, w, dy, params["stride"], params["pad"]).items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(ours[name]), err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "h", "w", "c", "k", "kernel", "stride", "pad", "groups"), DENSE)
def test_dense_and_grouped_convolutions(
    n: int, h: int, w: int, c: int, k: int, kernel: int, stride: int, pad: int, groups: int,
    dtype: Any,
) -> None:  # fmt: skip
    x, weight = normals(n * h + c, dtype, (n, h, w, c), (k, kernel, kernel, c // groups))
    shape = (n, outputs(h, kernel, stride, pad), outputs(w, kernel, stride, pad), k)
    params = {"stride": stride, "pad": pad, "groups": groups}
    check(conv, "group_conv", x, weight, shape, params)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "h", "w", "c", "kernel", "stride", "pad"), DEPTHWISE)
def test_depthwise_convolutions(
    n: int, h: int, w: int, c: int, kernel: int, stride: int, pad: int, dtype: Any
) -> None:
    x, weight = normals(n * h + c, dtype, (n, h, w, c), (c, kernel, kernel, 1))
    shape = (n, outputs(h, kernel, stride, pad), outputs(w, kernel, stride, pad), c)
    check(depthwise, "depthwise_conv", x, weight, shape, {"stride": stride, "pad": pad})


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_with_the_statistics_of_its_output(offset: float, kernel: int) -> None:
    x, w = normals(3, np.float16, (4, 12, 12, 16), (24, kernel, kernel, 16))
    x += np.float16(offset)
    prev = {"mean": np.zeros(24, np.float32), "var": np.ones(24, np.float32)}
    ours = conv_statistics(x, w, prev, 1, kernel // 2)
    params = {"stride": 1, "pad": kernel // 2, "groups": 1}
    theirs = MEANING["group_conv_forward"](wide({"x": x, "w": w}), params, {})
    assert_close(ours["y"], theirs["y"], np.float16)
    given = {**wide({"x": ours["y"]}), "prev_mean": 0.0, "prev_var": 1.0, "gamma": 1.0, "beta": 0.0}
    expected = MEANING["batch_norm_forward"](given, {"momentum": 0.1, "eps": 1e-5}, {})
    for name in ("mean", "inverse_std", "next_mean", "next_var"):
        assert relative_error(ours[name], expected[name]) <= 1e-3, name
    for name, value in conv_statistics(x, w, prev, 1, kernel // 2).items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(ours[name]), err_msg=name)


def test_the_published_value_of_a_padded_strided_convolution() -> None:
    x = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4, 1)
    w = np.array([1, 0, 0], np.float32).reshape(1, 1, 3, 1)
    sizes = {**conv_sizes((1, 3, 6, 1), (1, 1, 3, 1), 2, 0), "h": 1, "p": 1}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    y, *_ = run(
        targets.CONV_FORWARD, padded, w, poisoned((1, 1, 2, 1), np.float32), workspace(),
        **sizes, type=0, y_type=0, workspace_bytes=WORKSPACE_BYTES,
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(y).ravel(), [0, 2])


@pytest.mark.parametrize(
    ("target", "kind", "y_type"),
    [
        (targets.CONV_FORWARD, "forward", 0),
        (targets.CONV_FORWARD_STATISTICS, "forward_statistics", 0),
        (targets.CONV_BACKWARD_DATA, "backward_data", 1),
        (targets.CONV_BACKWARD_WEIGHT, "backward_weight", 1),
    ],
)
def test_a_dense_convolution_on_cuda_is_a_librarys(target: Target, kind: str, y_type: int) -> None:
    sizes = conv_sizes((2, 9, 8, 6), (9, 3, 3, 2), 2, 1)
    more = {"type": 1, "y_type": 0, "workspace_bytes": 7, "partial_rows": 3}
    call = InPlaceCall(target, (), {**sizes, **more}, "conv7")
    names = ["statistics", "finalise"] if kind == "forward_statistics" else []
    behind = [launch.kernel.name for launch in launches_behind(call, summed=0)]
    assert behind == [f"batch_norm_{name}_kernel" for name in names]
    behind = [launch.kernel.name for launch in launches_behind(call, summed=1)]
    assert behind == [f"batch_norm_{name}_kernel" for name in names[1:]]
    found = convolution_of(call)
    assert found == Convolution(kind, 1, y_type, (2, 9, 8, 6, 9, 5, 4, 3, 3, 2, 1, 3), 7)
    assert found.numbers[1:] == (1, y_type, 2, 9, 8, 6, 9, 5, 4, 3, 3, 2, 1, 3, 7)


def test_a_convolution_is_named_by_all_its_plan_depends_on() -> None:
    sizes = (2, 9, 8, 6, 9, 5, 4, 3, 3, 2, 1, 3)
    assert str(Convolution("forward", 1, 0, sizes, 7)) == (
        "forward fp16tofp32 2x9x8x6 to 5x4x9, 3x3, stride 2, pad 1, groups 3, workspace 7"
    )


def test_a_depthwise_convolution_is_ours() -> None:
    assert convolution_of(InPlaceCall(targets.DEPTHWISE_CONV_FORWARD, ())) is None
