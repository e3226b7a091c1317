"""Convolutions of four channels by their device code, run on the processor, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.convolutions import convolution_of
from renaissance.lowering.launches.stem import is_stem
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import COMPILER, emulate
from tests.lowering.maps import conv_sizes, normals
from tests.lowering.native import assert_close

WORKSPACE = 1 << 20
NAMES = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")
LAYOUT = "PPPP" + "q" * 7 + "i" * 5 + "i" + "q"
"""Pointers, shape, a gap, bytes of workspace."""
SUMS_LAYOUT = "P" * 8 + "qqqffi"
# x, (k, r, s), stride, pad
SHAPES = [
    ((2, 19, 38, 4), (40, 7, 7), 2, 3),
    ((2, 9, 33, 4), (64, 3, 3), 1, 1),
    ((3, 12, 9, 4), (104, 2, 3), 3, 1),
]
RESNET = ((2, 32, 32, 4), (64, 7, 7), 2, 3)


def attributes(shape: tuple[int, ...], filters: tuple[int, int, int], *window: int) -> Any:
    sizes = conv_sizes(shape, (*filters, 4), *window)
    return {**sizes, "type": 1, "y_type": 1, "workspace_bytes": WORKSPACE}


def test_which_convolutions_are_ours() -> None:
    a = attributes(*RESNET)

    def ours(target: targets.Target, **other: int) -> bool:
        return is_stem(InPlaceCall(target, (), {**a, **other}))

    forward, weight = targets.CONV_FORWARD, targets.CONV_BACKWARD_WEIGHT
    for target in (forward, weight):
        assert ours(target) and convolution_of(InPlaceCall(target, (), a)) is None
        assert not ours(target, c=8) and not ours(target, type=0) and not ours(target, k=60)
        assert not ours(target, groups=2)
    assert ours(targets.CONV_FORWARD_STATISTICS, partial_rows=3)
    assert not ours(targets.CONV_BACKWARD_DATA)
    assert not ours(forward, y_type=0), "logits in fp32"
    assert not ours(forward, r=11, s=11), "more taps than registers"
    assert not ours(forward, k=512), "more channels than warps"
    assert not ours(forward, q=30000), "rows longer than shared memory"
    assert not ours(weight, workspace_bytes=1000), "no place for a piece"


class Convolution:
    """A convolution with its operands and what it means, in double precision."""

    def __init__(self, shape: Any, filters: Any, stride: int, pad: int):
        self.a = a = attributes(shape, filters, stride, pad)
        self.y_shape = n, p, q, k = tuple(a[name] for name in ("n", "p", "q", "k"))
        self.w_shape = (*filters, 4)
        self.x, self.w, self.dy = normals(1, np.float16, shape, self.w_shape, self.y_shape)
        padded = np.pad(self.x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        seen = np.lib.stride_tricks.sliding_window_view(padded, filters[1:], (1, 2))
        self.seen = seen[:, ::stride, ::stride]  # n, p, q, c, r, s
        self.shape_fields = [*(a[name] for name in NAMES), 0, WORKSPACE]

    def forward(self, pieces: int) -> tuple[np.ndarray, np.ndarray]:
        """y, and the rows of sums it leaves; none where no pieces are wanted."""
        y = np.full(self.y_shape, np.nan, np.float16)
        fields = [self.x, self.w, y, None, *self.shape_fields, 1, 1]
        target = targets.CONV_FORWARD_STATISTICS if pieces else targets.CONV_FORWARD
        product = launches_of(InPlaceCall(target, (), {**self.a, "partial_rows": pieces or 1}))[0]
        if not pieces:
            emulate(product, "ConvForward", LAYOUT + "ii", fields)
            return y, np.zeros(0)
        n, p, q, k = self.y_shape
        partial = np.full((pieces, 2, k), np.nan, np.float32)
        sums = [y, *[None] * 6, partial, n * p * q, k, pieces, 0.1, 1e-5, 1]
        emulate(product, "ConvForwardStatistics", LAYOUT + "ii" + SUMS_LAYOUT, fields + sums)
        return y, partial[: product.grid[0]]

    def backward_weight(self) -> np.ndarray:
        """dw."""
        dw = np.full(self.w_shape, np.nan, np.float16)
        pieces = np.full(WORKSPACE // 4, np.nan, np.float32)
        fields = [self.x, self.dy, dw, pieces, *self.shape_fields, 1]
        for launch in launches_of(InPlaceCall(targets.CONV_BACKWARD_WEIGHT, (), self.a)):
            emulate(launch, "ConvBackwardWeight", LAYOUT + "i", fields)
        return dw


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
@pytest.mark.parametrize(("shape", "filters", "stride", "pad"), SHAPES)
def test_forward_with_sums_and_the_gradient_of_the_filters(
    shape: tuple[int, ...], filters: tuple[int, int, int], stride: int, pad: int
) -> None:
    one = Convolution(shape, filters, stride, pad)
    y, sums = one.forward(pieces=7)
    assert_close(y, np.einsum("npqcrs,krsc->npqk", one.seen, one.w.astype(float)), np.float16)
    written = y.astype(np.float64).reshape(-1, filters[0])
    assert 1 < len(sums) <= 7
    assert_close(sums.sum(0), np.stack([written.sum(0), (written**2).sum(0)]), np.float32)
    dw = np.einsum("npqcrs,npqk->krsc", one.seen, one.dy.astype(float))
    assert_close(one.backward_weight(), dw, np.float16)


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
def test_forward_without_sums() -> None:
    one = Convolution((2, 6, 5, 4), (24, 1, 1), 1, 0)
    y, _ = one.forward(pieces=0)
    assert_close(y, np.einsum("npqcrs,krsc->npqk", one.seen, one.w.astype(float)), np.float16)


def test_a_device_of_less_shared_memory_gets_smaller_pieces() -> None:
    sizes = {"n": 256, "h": 224, "w": 224, "p": 112, "q": 112, "workspace_bytes": 32 << 20}
    a = {**attributes(*RESNET), **sizes}
    targets_of_both = (targets.CONV_FORWARD, targets.CONV_BACKWARD_WEIGHT)
    for limit in (227 << 10, 99 << 10):
        for target in targets_of_both:
            call = InPlaceCall(target, (), {**a, "shared_limit": limit})
            assert is_stem(call) and launches_of(call)[0].shared_bytes < limit
    assert not is_stem(InPlaceCall(targets.CONV_FORWARD, (), {**a, "shared_limit": 16 << 10}))
