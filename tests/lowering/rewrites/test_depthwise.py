"""A depthwise convolution that normalises what it reads and sums what it writes; its rewrite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.launches.depthwise_norm import (
    ACTIVATED,
    X,
    Y,
    cut_of,
    shape_of,
    tile_of_columns,
)
from renaissance.lowering.launches.packs import tile_of
from renaissance.lowering.rewrites.depthwise import fuse_depthwise, leave_out_unread
from renaissance.runtime import library
from tests.emulation import depthwise as emulated
from tests.emulation.run import COMPILER
from tests.graph.meaning import MEANING
from tests.lowering import maps
from tests.lowering.maps import normals, wide
from tests.lowering.native import assert_close, relative_error

emulation = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")
native = pytest.mark.skipif(not library.status().custom_calls, reason=library.status().message)

# n, h, w, c, stride, activation (False: no norm), whether the activated map is stored
CASES = [
    (2, 9, 7, 6, 1, "relu6", True),
    (1, 5, 16, 72, 1, "relu6", False),
    (1, 7, 9, 6, 2, "hardswish", True),
    (2, 8, 29, 12, 2, False, False),
    (1, 2, 3, 640, 1, "relu6", False),
]
MORE_CASES = [
    (2, 1, 1, 2, 2, "relu6", True),
    (1, 2, 3, 4, 1, None, True),
    (1, 5, 28, 72, 1, False, False),
    (1, 16, 28, 16, 2, "relu", True),
    (5, 15, 21, 96, 1, "relu6", True),
]


def given_of(n: int, h: int, w: int, c: int, norm: bool) -> dict[str, np.ndarray]:
    """Maps and constants in which zeros differ from what a norm makes of zero."""
    x, filters = normals(n * h + c, np.float16, (n, h, w, c), (c, 3, 3, 1))
    gamma, beta, mean, prev = normals(c, np.float32, (c,), (c,), (c,), (c,))
    given = {"x": x, "w": filters, "prev_mean": prev, "prev_var": prev * prev}
    if norm:
        given |= {"gamma": 2 * gamma, "beta": beta + 1, "norm_mean": mean, "norm_std": 1 + mean**2}
    return given


def meaning_of(
    given: dict[str, np.ndarray], ours: dict[str, np.ndarray], stride: int, activation: Any
) -> dict[str, np.ndarray]:
    """In double; statistics are those of the output as it was rounded."""
    x = wide({"x": given["x"]})["x"]
    if "gamma" in given:
        constants = {"mean": given["norm_mean"], "inverse_std": given["norm_std"]}
        names = wide({"x": x, "gamma": given["gamma"], "beta": given["beta"], **constants})
        x = MEANING["batch_norm_apply"](names, {"activation": activation}, {})["y"]
    result = {"activated": x}
    filters = {"x": x, "w": wide(given)["w"]}
    result["y"] = MEANING["depthwise_conv_forward"](filters, {"stride": stride, "pad": 1}, {})["y"]
    sums = {"x": np.asarray(ours["y"], np.float64), "gamma": 1.0, "beta": 0.0}
    sums |= {name: given[name].astype(np.float64) for name in ("prev_mean", "prev_var")}
    norm = MEANING["batch_norm_forward"](sums, {"momentum": 0.1, "eps": 1e-5}, {})
    names_ = ("mean", "inverse_std", "next_mean", "next_var")
    return {**result, **{name: norm[name] for name in names_}}


def check(case: tuple[Any, ...], run: Any = maps.run) -> dict[str, np.ndarray]:
    n, h, w, c, stride, activation, stored = case
    given = given_of(n, h, w, c, activation is not False)
    params = {"stride": stride, "activation": activation or None}
    ours = maps.depthwise_norm(given, params, stored=stored, run=run)
    theirs = meaning_of(given, ours, stride, activation or None)
    assert ("activated" in ours) == stored
    for name, value in ours.items():
        if name in ("y", "activated"):
            assert_close(value, theirs[name], np.float16)
        else:
            assert relative_error(value, theirs[name]) <= 1e-4, name
    return ours


@emulation
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_device_code_means_what_the_three_operations_mean(case: tuple[Any, ...]) -> None:
    check(case, emulated.run)


@native
@pytest.mark.parametrize("case", [*CASES, *MORE_CASES], ids=str)
def test_the_library_means_what_the_three_operations_mean(case: tuple[Any, ...]) -> None:
    """And the same bits again, whether the activated map is stored or not."""
    ours, (n, h, w, c, stride, activation, stored) = check(case), case
    given = given_of(n, h, w, c, activation is not False)
    params = {"stride": stride, "activation": activation or None}
    again = maps.depthwise_norm(given, params, stored=not stored and "gamma" in given)
    for name in set(ours) & set(again):
        np.testing.assert_array_equal(np.asarray(again[name]), np.asarray(ours[name]), name)


@native
def test_an_activated_map_has_the_bits_of_the_norm_alone() -> None:
    """With values of every kind: zeros of both signs, infinities and NaN."""
    given = given_of(2, 7, 14, 8, norm=True)
    x = given["x"]
    x[0, 0, 0, :] = (0.0, -0.0, np.inf, -np.inf, np.nan, 6.0, 65504.0, -65504.0)
    given["gamma"][:2], given["beta"][:2], given["norm_mean"][:2] = 1.0, 0.0, 0.0
    alone = {"x": x, "gamma": given["gamma"], "beta": given["beta"]}
    alone |= {"mean": given["norm_mean"], "inverse_std": given["norm_std"]}
    for activation in ("relu6", "relu", None):
        params = {"stride": 1, "activation": activation}
        ours = maps.depthwise_norm(given, params, stored=True)["activated"]
        theirs = maps.apply(alone, activation, z=False)["y"]
        bits = [np.asarray(y, np.float16).view(np.uint16) for y in (ours, theirs)]
        np.testing.assert_array_equal(*bits)


def place(index: int, nbytes: int = 1 << 16) -> Location:
    """Bytes of a bank, apart from those of other indices."""
    return Location(Bank.SCRATCH, index << 17, nbytes, f"tensor{index}")


def chain(shortcut: bool = False, y: int = 9, **more: Any) -> list[InPlaceCall]:
    """Norm, depthwise convolution and statistics: x 0, norm 1-4, activated 5, w 8, y 9."""
    sizes = {**maps.conv_sizes((2, 8, 8, 16), (16, 3, 3, 1), 1, 1), "type": 1, **more}
    sums = {"rows": 128, "c": 16, "partial_rows": 4, "momentum": 0.1, "eps": 1e-5, "type": 1}
    norm = {"rows": 128, "c": 16, "type": 1, "activation": 2}
    operands = [place(i) for i in range(5)]
    besides = (place(7) if shortcut else None, *[None] * 4, place(5), None, None)
    out = place(y)
    return [
        InPlaceCall(targets.BATCH_NORM_APPLY, (*operands, *besides), norm, "norm"),
        InPlaceCall(targets.DEPTHWISE_CONV_FORWARD, (place(5), place(8), out), sizes, "conv"),
        InPlaceCall(
            targets.BATCH_NORM_STATISTICS, (out, *(place(10 + i) for i in range(7))), sums, "conv"
        ),
    ]


def reader(index: int) -> InPlaceCall:
    """A call that reads a place, and writes another."""
    return InPlaceCall(targets.ADD_FORWARD, (place(index), place(30), place(31), None), {})


def test_the_three_become_one() -> None:
    calls = chain()
    (fused,) = fuse_depthwise(calls)
    assert fused.target is targets.DEPTHWISE_NORM_FORWARD
    norm, convolution, statistics = calls
    assert fused.operands[:5] == norm.operands[:5]
    assert fused.operands[ACTIVATED : Y + 1] == convolution.operands
    assert fused.operands[Y + 1 :] == statistics.operands[1:]
    assert fused.attributes["activation"] == 2
    assert fuse_depthwise([reader(0), *calls, reader(9)]) == [reader(0), fused, reader(9)]


def test_an_activated_map_is_written_only_where_something_reads_it() -> None:
    (fused,) = fuse_depthwise(chain())
    (unread, _) = leave_out_unread([fused, reader(9)])
    assert unread.operands[ACTIVATED] is None
    assert unread.operands[:ACTIVATED] == fused.operands[:ACTIVATED]
    assert leave_out_unread([fused, reader(9), reader(5)])[0] == fused


def test_a_norm_with_a_shortcut_stays_and_the_sums_are_taken_along() -> None:
    norm, fused = fuse_depthwise(chain(shortcut=True))
    assert norm.target is targets.BATCH_NORM_APPLY
    assert fused.target is targets.DEPTHWISE_NORM_FORWARD
    assert fused.operands[X] == place(5)
    assert fused.operands[X + 1 : ACTIVATED + 1] == (None,) * 5


@pytest.mark.parametrize("more", [{"pad": 0}, {"stride": 3}, {"type": 0}, {"r": 5}, {"c": 15}])
def test_other_convolutions_stay(more: dict[str, int]) -> None:
    assert fuse_depthwise(chain(**more)) == chain(**more)


def test_an_output_in_the_place_of_what_is_read_is_not_fused_with_its_reading() -> None:
    norm, fused = fuse_depthwise(chain(y=0))
    assert norm == chain()[0]
    assert fused.operands[X] == place(5)
    assert fuse_depthwise(chain(y=5)) == chain(y=5)


def test_blocks_read_whole_pixels_or_whole_lines() -> None:
    assert tile_of_columns(72, 4) == (72, 1)
    assert tile_of_columns(288, 4) == (32, 9)
    assert tile_of_columns(36, 8) == (36, 1)
    assert tile_of_columns(1000, 4) == tile_of(1000)
    assert tile_of_columns(300, 4) == tile_of(300)


@pytest.mark.parametrize(("c", "side", "stride"), [(32, 112, 1), (144, 56, 2), (960, 7, 1)])
def test_all_blocks_run_at_once_and_share_all_strips(c: int, side: int, stride: int) -> None:
    a = maps.conv_sizes((256, side, side, c), (c, 3, 3, 1), stride, 1)
    cut, shape = cut_of(a, 512), shape_of(a)
    tile, tiles = tile_of_columns(c // shape.width, 2 * shape.width)
    assert 100 < cut.pieces * tiles <= 264
    assert 1 <= cut.rows <= a["p"]
    assert cut_of(a, 3).pieces == 3
