"""The matrix kernels' own source, run on the processor: every tile, odd shapes, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.launches import tiles
from renaissance.lowering.launches.fc import fc_backward, fc_forward
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import COMPILER, emulate
from tests.lowering.native import assert_close

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")

RELU = 1
FORWARD = [tiles.LARGE, tiles.MEDIUM, tiles.SMALL, tiles.NARROW]
BACKWARD = [tiles.WEIGHTS_ONLY, tiles.LARGE_SHARED, tiles.SMALL_SHARED]


def randoms(dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def poison(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """What a kernel must overwrite; one row more than it may touch."""
    return np.full((shape[0] + 1, *shape[1:]), np.nan, dtype)


def forward_case(n: int, c: int, k: int, dtype: Any, tile: Any) -> None:
    x, w = randoms(dtype, (n, c), (k, c))
    (bias,) = randoms(np.float32, (k,))
    y, half = poison((n, k), dtype), int(dtype == np.float16)
    sizes = {"n": n, "c": c, "k": k, "type": half, "y_type": half, "activation": RELU}
    call = InPlaceCall(targets.FC_FORWARD, (Argument("a"),) * 4 + (None,), sizes)
    (launch,) = fc_forward(call, tile)
    fields = [x, w, bias, y, None, n, c, k, half, half, RELU]
    emulate(launch, "FcForward", "PPPPPqqqiii", fields)
    wide = x.astype(np.float64) @ w.astype(np.float64).T + bias
    assert_close(y[:n], np.maximum(wide, 0), dtype)
    assert np.isnan(y[n]).all(), "written past the end"


def backward_case(n: int, c: int, k: int, dtype: Any, tile: Any, *, data: bool = True) -> None:
    dy, x, w = randoms(dtype, (n, k), (n, c), (k, c))
    x = np.maximum(x, 0)
    dx, dw, dbias = poison((n, c), dtype), poison((k, c), dtype), poison((k,), np.float32)
    flag, half = np.zeros(1, np.int32), int(dtype == np.float16)
    sizes = {"n": n, "c": c, "k": k, "type": half, "activation": RELU if data else 0}
    a = Argument("a")
    wanted = (w, x, dx) if data else (None, None, None)
    operands = (a, a, *(None if v is None else a for v in wanted), a, a, a)
    (launch,) = fc_backward(InPlaceCall(targets.FC_BACKWARD, operands, sizes), tile)
    fields = [dy, x, *wanted, dw, dbias, flag, n, c, k, half, sizes["activation"]]
    emulate(launch, "FcBackward", "PPPPPPPPqqqii", fields)
    wide = [v.astype(np.float64) for v in (dy, x, w)]
    assert_close(dw[:k], wide[0].T @ wide[1], dtype)
    assert_close(dbias[:k], wide[0].sum(0), np.float32)
    assert np.isnan(dw[k]).all() and np.isnan(dbias[k]) and flag[0] == 0
    if data:
        assert_close(dx[:n], (wide[0] @ wide[2]) * (x > 0), dtype)
        assert np.isnan(dx[n]).all()


@pytest.mark.parametrize("tile", FORWARD, ids=["large", "medium", "small", "narrow"])
def test_forward_in_fp16(tile: tiles.Tile) -> None:
    forward_case(70, 328, 72, np.float16, tile)


def test_forward_in_fp16_with_rows_of_odd_length() -> None:
    forward_case(35, 77, 33, np.float16, tiles.SMALL)


@pytest.mark.parametrize("tile", BACKWARD, ids=["weights only", "large", "small"])
def test_backward_in_fp16(tile: tiles.Tile) -> None:
    backward_case(70, 136, 72, np.float16, tile, data=tile is not tiles.WEIGHTS_ONLY)


def test_backward_in_fp16_with_rows_of_odd_length() -> None:
    backward_case(35, 33, 10, np.float16, tiles.SMALL_SHARED)


@pytest.mark.parametrize("shape", [(70, 41, 35), (200, 17, 1024), (900, 20, 1024)])
def test_forward_in_fp32(shape: tuple[int, int, int]) -> None:
    forward_case(*shape, np.float32, None)


@pytest.mark.parametrize("shape", [(33, 41, 35), (100, 300, 1100)])
def test_backward_in_fp32(shape: tuple[int, int, int]) -> None:
    backward_case(*shape, np.float32, None)


@pytest.mark.parametrize(("n", "k"), [(70, 10), (9, 1000), (520, 3), (35, 70), (33, 1050)])
def test_softmax_cross_entropy(n: int, k: int) -> None:
    (z,) = randoms(np.float32, (n, k))
    labels = np.random.default_rng(1).integers(0, k, n).astype(np.int32)
    dz, predicted, sums = np.empty_like(z), np.empty(n, np.int32), np.empty(4, np.float32)
    rows, scale = np.empty(3 * n, np.float32), np.array([8.0], np.float32)
    sizes = {"n": n, "k": k, "smoothing": 0.1, "type": 0, "gradient_type": 0}
    call = InPlaceCall(targets.SOFTMAX_CROSS_ENTROPY, (Argument("a"),) * 10, sizes)
    outputs = [sums[i : i + 1] for i in range(4)]
    fields = [z, labels, scale, dz, predicted, *outputs, rows, n, k, 0.1, 0, 0]
    for launch in launches_of(call):
        emulate(launch, "SoftmaxCrossEntropy", "PPPPPPPPPPqqfii", fields)
    wide = z.astype(np.float64)
    shifted = np.exp(wide - wide.max(1, keepdims=True))
    target = 0.9 * np.eye(k)[labels] + 0.1 / k
    assert_close(dz, (shifted / shifted.sum(1, keepdims=True) - target) * 8 / n, np.float32)
    losses = -(target * np.log(shifted / shifted.sum(1, keepdims=True))).sum(1)
    assert sums[0] == pytest.approx(losses.sum(), rel=1e-5)
    assert sums[1] == (wide.argmax(1) == labels).sum() and sums[3] == n
    np.testing.assert_array_equal(predicted, wide.argmax(1))


@pytest.mark.parametrize("to_type", [np.float16, np.float32])
@pytest.mark.parametrize("from_type", [np.float16, np.float32])
@pytest.mark.parametrize("rows", [2, 1])
def test_loading_a_batch_pads_its_pixels(rows: int, from_type: Any, to_type: Any) -> None:
    """Two pixels at a time, or one by one where they are an odd number."""
    (images,) = randoms(from_type, (3, rows, 37, 37, 3))
    labels, pixels = np.arange(3 * rows, dtype=np.int32), rows * 37 * 37
    data, label = np.full((rows, 37, 37, 4), np.nan, to_type), np.zeros(rows, np.int32)
    sizes = {"pixels": pixels, "channels": 3, "padded_channels": 4, "rows": rows}
    types = [int(t is np.float16) for t in (from_type, to_type)]
    fields = [images, labels, np.array([1], np.int32), data, label, *sizes.values(), *types]
    for launch in launches_of(InPlaceCall(targets.LOAD_BATCH, (), sizes)):
        emulate(launch, "LoadBatch", "PPPPPqqqqii", fields)
    np.testing.assert_array_equal(data[..., :3], images[1].astype(to_type))
    assert not data[..., 3].any()
    np.testing.assert_array_equal(label, labels[rows : 2 * rows])


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_by_norm(max_norm: float) -> None:
    (g,) = randoms(np.float32, (5000,))
    partial, before = np.full(512, np.nan), g.copy()
    sizes = {"count": g.size, "max_norm": max_norm, "rows": 512}
    for launch in launches_of(InPlaceCall(targets.CLIP_BY_NORM, (Argument("a"),) * 2, sizes)):
        emulate(launch, "ClipByNorm", "PPqfi", [g, partial, g.size, max_norm, 512])
    norm = np.linalg.norm(before.astype(np.float64))
    np.testing.assert_allclose(g, before * min(1.0, max_norm / norm), rtol=1e-6)
