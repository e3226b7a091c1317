"""The source of kernels on pointwise convolutions, run on the processor, against their meaning."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.lowering.launches import pointwise_backward as plans
from renaissance.lowering.launches.pointwise_backward import PointwiseShape
from tests.emulation import pointwise_backward as emulated
from tests.emulation.run import COMPILER
from tests.lowering.maps import on_a_grid
from tests.lowering.native import relative_error
from tests.lowering.pointwise_backward import backward_data, meaning, names_of, operands

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")


@pytest.mark.parametrize(
    ("rows", "k", "c", "variant", "activation", "shape"),
    [
        (333, 136, 72, "gate addend shortcut", "relu", PointwiseShape(128, 32, 48, 3)),
        (217, 40, 72, "bits addend norms", "relu", PointwiseShape(64, 48, 48, 2, 4, 1)),
        (350, 24, 72, "", "relu6", None),
    ],
)
def test_gradient_of_the_input_and_the_norm_that_reads_it(
    rows: int, k: int, c: int, variant: str, activation: str | None, shape: PointwiseShape | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if shape is not None:
        monkeypatch.setitem(plans.MEASURED, (k, c), shape)
    monkeypatch.setattr(plans, "MULTIPROCESSORS", 3)  # so that blocks walk over tiles
    given = operands(rows, k, c, variant)
    ours = backward_data(given, activation, names_of(variant), emulated.run)
    theirs = meaning(given, activation)
    for name in names_of(variant):
        assert relative_error(ours[name], theirs[name]) <= 2e-3, name


@pytest.mark.parametrize("variant", ["bits addend shortcut", "addend norms"])
def test_an_addend_of_the_pixels_alone_that_a_strided_convolution_read(variant: str) -> None:
    n, h, w, k, c = 3, 7, 10, 24, 40
    given = operands(n * h * w, k, c, variant)
    spread, small, grid = on_a_grid(given["addend"].reshape(n, h, w, c), 2)
    names = names_of(variant)
    dense = {**given, "addend": spread.reshape(-1, c)}
    theirs = backward_data(dense, "relu", names, emulated.run)
    alone = {**given, "addend": small}
    ours = backward_data(alone, "relu", names, emulated.run, grid)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name], name)
