"""The 3x3 convolution of 64 channels by its device code, run on the processor, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.conv3x3 import (
    Conv3x3Shape,
    conv3x3,
    conv3x3_shape,
    is_conv3x3,
)
from renaissance.lowering.launches.convolutions import convolution_of
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import COMPILER, emulate
from tests.lowering.maps import conv_sizes, normals
from tests.lowering.native import assert_close
from tests.runtime.test_device_code_stem import LAYOUT, NAMES, SUMS_LAYOUT

FILTERS = (64, 3, 3, 64)


def attributes(shape: tuple[int, ...]) -> Any:
    return {**conv_sizes(shape, FILTERS, 1, 1), "type": 1, "y_type": 1, "workspace_bytes": 0}


def test_which_convolutions_are_ours() -> None:
    a = attributes((256, 56, 56, 64))

    def ours(target: targets.Target, **other: Any) -> bool:
        return is_conv3x3(InPlaceCall(target, (), {**a, **other}))

    for target in (targets.CONV_FORWARD, targets.CONV_BACKWARD_DATA):
        assert ours(target) and convolution_of(InPlaceCall(target, (), a)) is None
        assert not ours(target, type=0) and not ours(target, c=128) and not ours(target, stride=2)
        assert not ours(target, groups=2) and not ours(target, pad=0) and not ours(target, r=1)
        assert not ours(target, warpgroups=False), "a device without them"
        assert not ours(target, n=16), "too few tiles for the multiprocessors"
        assert not ours(target, h=28, w=28), "half of every tile would be padding"
        assert ours(target, h=32, w=32) and ours(target, h=224, w=224)
    assert ours(targets.CONV_FORWARD_STATISTICS, partial_rows=132)
    assert not ours(targets.CONV_FORWARD, y_type=0), "logits in fp32"
    assert not ours(targets.CONV_BACKWARD_WEIGHT)
    names = [
        launch.kernel.name
        for launch in launches_of(
            InPlaceCall(targets.CONV_FORWARD_STATISTICS, (), {**a, "partial_rows": 132})
        )
    ]
    assert names == ["conv3x3_kernel", "batch_norm_finalise_kernel"]
    assert [conv3x3_shape({**a, "h": h}).strip for h in (56, 224, 32, 40)] == [7, 7, 4, 5]


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
@pytest.mark.parametrize(
    ("shape", "strip", "stages", "blocks"),
    [((2, 35, 20, 64), 5, 4, 1), ((1, 33, 9, 64), 4, 3, 2)],
)
def test_forward_with_sums_and_the_gradient_of_the_input(
    shape: tuple[int, ...], strip: int, stages: int, blocks: int
) -> None:
    a = {**attributes(shape), "partial_rows": blocks}
    n, h, w, c = shape
    x, filters = normals(1, np.float16, shape, FILTERS)
    wide = x.astype(np.float64), filters.astype(np.float64)
    fields = [*(a[name] for name in NAMES), 0, 0]
    cut = Conv3x3Shape(2, stages, strip)

    y, partial = np.full(shape, np.nan, np.float16), np.full((blocks, 2, c), np.nan, np.float32)
    product = conv3x3(InPlaceCall(targets.CONV_FORWARD_STATISTICS, (), a), cut)
    assert product.grid[0] == blocks
    sums = [y, *[None] * 6, partial, n * h * w, c, blocks, 0.1, 1e-5, 1]
    given = [x, filters, y, None, *fields, 1, 1, *sums]
    emulate(product, "ConvForwardStatistics", LAYOUT + "ii" + SUMS_LAYOUT, given)
    assert_close(y, _convolved(*wide), np.float16)
    written = y.astype(np.float64).reshape(-1, c)
    assert_close(partial.sum(0), np.stack([written.sum(0), (written**2).sum(0)]), np.float32)

    dx = np.full(shape, np.nan, np.float16)
    product = conv3x3(InPlaceCall(targets.CONV_BACKWARD_DATA, (), a), cut)
    emulate(product, "ConvBackwardData", LAYOUT + "i", [x, filters, dx, None, *fields, 1])
    turned = wide[1][:, ::-1, ::-1].transpose(3, 1, 2, 0)
    assert_close(dx, _convolved(wide[0], turned), np.float16)

    gradient = dx.astype(np.float64)
    z, norm_x = _norm_backward(a, cut, x, filters, fields, dx)
    dz = np.where(z > 0, gradient, 0.0)
    assert_close(dx, dz, np.float16)
    assert_close(a["partial"][0], dz.sum((0, 1, 2)), np.float32)
    assert_close(a["partial"][1], (dz * norm_x).sum((0, 1, 2)), np.float32)


def _norm_backward(
    a: Any, cut: Conv3x3Shape, dy: np.ndarray, w: np.ndarray, fields: list[int], dz: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Runs the kernel with a norm and ReLU behind it: dz and, in a, the sums. z and x - mean."""
    (x,) = normals(7, np.float16, dy.shape)
    gamma, beta, mean, inverse_std = normals(8, np.float32, *[(64,)] * 4)
    dz[:], rows = np.nan, a["partial_rows"] + 1
    partial = np.full((rows, 2, 64), np.nan, np.float32)
    sizes = {**a, "activation": 1, "partial_rows": rows}
    product = conv3x3(InPlaceCall(targets.CONV_BACKWARD_DATA_NORM, (), sizes), cut)
    norm = [dz, None, None, x, gamma, beta, mean, inverse_std, *[None] * 11, partial, None, None]
    layout = LAYOUT + "i" + "P" * 22 + "qqq" + "q" * 6 + "iii" + "iii" + "i"
    more = [*norm, dy.size // 64, 64, rows, *[0] * 6, *[0] * 3, 0, 1, 1, 0]
    emulate(product, "ConvBackwardDataNorm", layout, [dy, w, dz, None, *fields, 1, *more])
    a["partial"] = partial.sum(0)
    centred = x.astype(np.float64) - mean
    return centred * (gamma * inverse_std) + beta, centred


def _convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = ((r, s) for r in range(3) for s in range(3))
    return sum(padded[:, r : r + height, s : s + width] @ w[:, r, s].T for r, s in taps)
