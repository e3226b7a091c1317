"""The source of the joined 1x1 convolution, run on the processor."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.lowering.launches import pointwise as pointwise_launches
from renaissance.lowering.launches.pointwise import PointwiseShape
from tests.emulation import maps as emulated_maps
from tests.emulation import pointwise as emulated
from tests.emulation.run import COMPILER
from tests.lowering import maps, pointwise

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")


@pytest.fixture(autouse=True)
def device_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "run", emulated_maps.run)


Cut = PointwiseShape


@pytest.mark.parametrize(
    ("rows", "c", "k", "prologue", "activation", "cut"),
    [
        (397, 24, 56, 2, None, Cut(56)),
        (133, 72, 24, 1, "relu6", Cut(8, threads=64)),
        (131, 128, 32, 3, "relu", Cut(32, depth=2, ahead=3, threads=64)),
        (70, 40, 16, 0, None, Cut(16, ahead=1, threads=32)),
        (141, 192, 24, 2, "relu", Cut(24, depth=2, ahead=0, threads=128)),
    ],
    ids=["odd filters", "shared rows", "two norms", "no norm", "in registers"],
)
def test_a_joined_convolution(
    rows: int,
    c: int,
    k: int,
    prologue: int,
    activation: str | None,
    cut: PointwiseShape,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointwise_launches, "shape_of", lambda *_: cut)
    given = pointwise.operands(rows, rows, c, k, prologue)
    has_mask = prologue > 0 and activation in ("relu", "relu6")
    found = pointwise.forward(given, activation, mask=has_mask, call=emulated.run)
    pointwise.check(given, activation, found)
    if has_mask:
        theirs = pointwise.applied(given, activation)
        for name in ("y", "mask"):
            np.testing.assert_array_equal(found[name], theirs[name])
