"""A strided convolution of four channels on pairs of columns gives the same numbers."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from renaissance.lowering import targets
from renaissance.lowering.conv_pairs import PACKED_BYTES, in_pairs, packing
from renaissance.lowering.ffi import Updated
from renaissance.lowering.targets import Convolution
from tests.emulation import maps as emulated
from tests.emulation.run import COMPILER
from tests.graph.meaning import MEANING
from tests.lowering.native import assert_close

SHAPES = [((2, 9, 12, 4), (5, 7, 3)), ((1, 6, 8, 4), (3, 3, 1)), ((2, 5, 6, 4), (3, 1, 0))]
LAYOUT = ("NHWC", "OHWI", "NHWC")


def given(x: tuple[int, ...], window: tuple[int, int, int]) -> Convolution:
    (n, h, w, c), (k, r, pad) = x, window
    p, q = ((extent + 2 * pad - r) // 2 + 1 for extent in (h, w))
    sizes = (n, h, w, c, k, p, q, r, r, 2, pad, 1)
    return Convolution("forward", 1, 1, sizes, 1 << 20)


def test_what_does_not_work_in_pairs_stays_as_it_is() -> None:
    one = given(*SHAPES[0])
    assert in_pairs(one) is not None
    assert in_pairs(replace(one, kind="backward_weight")) is not None
    assert in_pairs(replace(one, kind="backward_data")) is None
    assert in_pairs(replace(one, type=0)) is None
    assert in_pairs(replace(one, workspace_bytes=PACKED_BYTES - 1)) is None
    assert in_pairs(given((2, 9, 11, 4), (5, 7, 3))) is None, "an odd width"
    assert in_pairs(given((2, 9, 12, 8), (5, 7, 3))) is None, "channels enough"
    sizes = (*one.sizes[:9], 1, *one.sizes[10:])
    assert in_pairs(replace(one, sizes=sizes)) is None, "no stride"


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
@pytest.mark.parametrize(("shape", "window"), SHAPES)
def test_pairs_of_columns_give_the_same_convolution_and_gradient(
    shape: tuple[int, ...], window: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulated, "launches_of", lambda call: [packing(call)])
    one = given(shape, window)
    pairs = in_pairs(one)
    assert pairs is not None and pairs.across is not None
    n, h, w, c, k, p, q, r, s, stride, pad, _ = pairs.sizes
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float16)
    filters = rng.standard_normal((k, window[1], window[1], 4)).astype(np.float16)
    names = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")
    sizes = dict(zip(names, one.sizes, strict=True)) | {"workspace_bytes": 1 << 20, "type": 1}

    empty = np.full(PACKED_BYTES // 2, np.nan, np.float16)
    operands = (x, filters, np.zeros(1, np.float16), Updated(empty))
    (packed,) = emulated.run(targets.CONV_FORWARD, *operands, **sizes, y_type=1)
    packed = packed[: k * r * s * c].reshape(k, r, s, c).astype(np.float32)

    def convolved(filters: jax.Array) -> jax.Array:
        pads = ((pad, pad), (pairs.across[1],) * 2)  # type: ignore[index]
        images = x.reshape(n, h, w, c).astype(np.float32)
        strides = (stride, pairs.across[0])  # type: ignore[index]
        return jax.lax.conv_general_dilated(
            images, filters, strides, pads, dimension_numbers=LAYOUT
        )

    y, pull = jax.vjp(convolved, packed)
    params = {"stride": 2, "pad": window[2]}
    wide = {"x": x.astype(float), "w": filters.astype(float)}
    assert_close(y, MEANING["conv_forward"](wide, params, {})["y"], np.float32)

    dy = rng.standard_normal((n, p, q, k)).astype(np.float32)
    gradient = np.asarray(pull(dy)[0], np.float16).reshape(-1)
    place = np.full(PACKED_BYTES // 2, np.nan, np.float16)
    place[: gradient.size] = gradient
    dw = np.full(filters.shape, np.nan, np.float16)
    operands = (x, dy.astype(np.float16), Updated(dw), place)
    (dw,) = emulated.run(targets.CONV_BACKWARD_WEIGHT, *operands, **sizes)
    wide["dy"] = dy.astype(float)
    shapes = {"dw": filters.shape}
    assert_close(dw, MEANING["conv_backward_weight"](wide, params, shapes)["dw"], np.float16)
