"""A 3x3 convolution of 64 channels, by the kernel of ours where the device has it, and its norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS
from renaissance.lowering.launches import conv3x3
from renaissance.runtime import library
from tests.graph.meaning import MEANING
from tests.lowering.maps import (
    NO_POOL,
    WORKSPACE_BYTES,
    conv,
    conv_sizes,
    conv_statistics,
    normals,
    poisoned,
    wide,
    workspace,
)
from tests.lowering.native import assert_close, relative_error, run
from tests.lowering.pointwise_backward import constants

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

SHAPE, FILTERS = (1, 54, 15, 64), (64, 3, 3, 64)
PARAMS = {"stride": 1, "pad": 1, "groups": 1}


@pytest.fixture(autouse=True)
def _few_tiles_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv3x3, "FEWEST_TILES", 1)


def test_forward_and_backward() -> None:
    x, w, dy = normals(1, np.float16, SHAPE, FILTERS, SHAPE)
    ours, given = conv(x, w, dy, 1, 1), wide({"x": x, "w": w, "dy": dy})
    theirs = MEANING["group_conv_forward"](given, PARAMS, {})
    theirs |= MEANING["group_conv_backward_data"](given, PARAMS, {"dx": x.shape})
    for name, value in theirs.items():
        assert_close(ours[name], value, np.float16)
    prev = {"mean": np.zeros(64, np.float32), "var": np.ones(64, np.float32)}
    summed = conv_statistics(x, w, prev, 1, 1)
    assert_close(summed["mean"], np.asarray(summed["y"], np.float64).mean((0, 1, 2)), np.float16)
    assert np.array_equal(summed["y"], ours["y"])


@pytest.mark.parametrize("activation", ["relu", "relu6", None])
def test_gradient_of_the_input_and_the_norm_that_reads_it(activation: str | None) -> None:
    dy, x = normals(2, np.float16, SHAPE, SHAPE)
    w = (normals(3, np.float16, FILTERS)[0] / 24).astype(np.float16)
    norm = constants(x.reshape(-1, 64))
    names = ("gamma", "beta", "mean", "inverse_std")
    sizes: dict[str, Any] = {**NO_POOL, **conv_sizes(SHAPE, FILTERS, 1, 1), "type": 1}
    sizes |= {"rows": x.size // 64, "partial_rows": 3, "workspace_bytes": WORKSPACE_BYTES}
    sizes["activation"] = ACTIVATION_NUMBERS[activation]
    vectors = (poisoned((64,), np.float32) for _ in range(2))
    results = run(
        targets.CONV_BACKWARD_DATA_NORM, dy, w, workspace(), poisoned(SHAPE, np.float16), None,
        None, x, *(norm[name] for name in names), *[None] * 5, poisoned(SHAPE, np.float16),
        *vectors, *[None] * 3, poisoned((3, 128), np.float32), None, None, **sizes,
    )  # fmt: skip
    dx, dgamma, dbeta = results[-4:-1]

    given = wide({"dy": dy, "w": w})
    dz = MEANING["group_conv_backward_data"](given, PARAMS, {"dx": SHAPE})["dx"].reshape(-1, 64)
    gamma, beta, mean, inverse_std = (norm[name].astype(np.float64) for name in names)
    xhat = (x.reshape(-1, 64).astype(np.float64) - mean) * inverse_std
    z = xhat * gamma + beta
    open_ = {"relu": z > 0, "relu6": (z > 0) & (z < 6), None: np.ones_like(z)}[activation]
    dz = dz * open_
    sums = dz.sum(0), (dz * xhat).sum(0)
    expected = gamma * inverse_std * (dz - (sums[0] + xhat * sums[1]) / len(z))
    assert relative_error(np.asarray(dx).reshape(-1, 64), expected) <= 4e-3, "z may be at a kink"
    assert relative_error(dbeta, sums[0]) <= 4e-3 and relative_error(dgamma, sums[1]) <= 4e-3
