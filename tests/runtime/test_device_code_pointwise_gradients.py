"""The source of kernels on a pointwise convolution's gradients, run on the processor."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.lowering.launches import pointwise_backward, pointwise_gradients
from renaissance.lowering.launches.pointwise_backward import PointwiseShape
from renaissance.lowering.launches.pointwise_gradients import GradientsShape
from tests.emulation import pointwise_backward as emulated
from tests.emulation.run import COMPILER
from tests.lowering.native import relative_error
from tests.lowering.pointwise_backward import meaning, operands
from tests.lowering.pointwise_gradients import filters_gradient, gradients

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")

GROUPS = GradientsShape(PointwiseShape(64, 64, 64, 7, 4, 1, 2, groups=True), 2, 2)


@pytest.mark.parametrize(
    ("rows", "k", "c", "activation", "shape"),
    [
        (333, 136, 72, "relu", GradientsShape(PointwiseShape(128, 32, 48, 8, 4, 2, 1), 2, 1)),
        (517, 96, 80, None, GradientsShape(PointwiseShape(64, 48, 48, 3, 2, 3, 1), 3, 2, 2, 2)),
        (130, 200, 40, "relu6", GROUPS),  # for a device that has none
    ],
)
def test_gradients_of_the_input_and_of_the_filters(
    rows: int, k: int, c: int, activation: str | None, shape: GradientsShape,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(pointwise_gradients.MEASURED, (k, c), shape)
    monkeypatch.setattr(pointwise_backward, "MULTIPROCESSORS", 3)  # so that blocks walk over tiles
    given = operands(rows, k, c, "")
    ours = gradients(given, activation, emulated.run)
    theirs = {**meaning(given, activation), "dw": filters_gradient(given, activation)}
    for name in ("dx", "dgamma", "dbeta", "dw"):
        assert relative_error(ours[name], theirs[name]) <= 2e-3, name
    assert np.isfinite(ours["product"]).all()
