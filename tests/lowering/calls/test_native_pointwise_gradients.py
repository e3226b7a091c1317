"""Both gradients of a pointwise convolution, against those of the separate calls."""

from __future__ import annotations

import pytest

from renaissance.lowering.launches import pointwise_gradients as plans
from renaissance.lowering.launches.pointwise_backward import PointwiseShape
from renaissance.lowering.launches.pointwise_gradients import GradientsShape
from renaissance.runtime import library
from tests.lowering.native import on_device, relative_error
from tests.lowering.pointwise_backward import backward_data, meaning, operands
from tests.lowering.pointwise_gradients import filters_gradient, gradients

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

VARIANTS = [
    (333, 64, 192, "relu6"),
    (150, 24, 96, "relu6"),
    (700, 16, 32, "relu"),
    (201, 40, 136, None),
    (257, 96, 40, "relu"),
    (65, 256, 64, "relu"),
]


@pytest.mark.parametrize(("rows", "k", "c", "activation"), VARIANTS)
def test_gradients_of_the_input_and_of_the_filters(
    rows: int, k: int, c: int, activation: str | None
) -> None:
    given = operands(rows, k, c, "")
    ours = gradients(given, activation)
    theirs = backward_data(given, activation, ("dx", "dgamma", "dbeta"))
    # on a device products are summed in an order that is each kernel's own
    limit = 1e-3 if on_device() else 0.0
    for name, value in theirs.items():
        if name != "partial":
            assert relative_error(ours[name], value) <= limit, name
    assert relative_error(ours["dw"], filters_gradient(given, activation)) <= 1e-3


@pytest.mark.skipif(not on_device(), reason="only a device has warpgroups")
@pytest.mark.parametrize(
    ("k", "c", "shape"),
    [
        (256, 64, GradientsShape(PointwiseShape(64, 64, 64, 7, 4, 1, 2, groups=True))),
        (200, 136, GradientsShape(PointwiseShape(64, 64, 64, 5, 4, 1, 2, groups=True))),
        (256, 128, GradientsShape(PointwiseShape(64, 128, 64, 6, 4, 2, 1, groups=True))),
        (512, 128, GradientsShape(PointwiseShape(64, 64, 64, 10, 4, 2, 1, groups=True))),
        (128, 64, GradientsShape(PointwiseShape(128, 64, 64, 3, 4, 2, 1), 2, 2)),
    ],
    ids=str,
)
def test_products_by_shape(
    k: int, c: int, shape: GradientsShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plans.MEASURED, (k, c), shape)
    given = operands(20011, k, c, "")
    ours = gradients(given, "relu")
    theirs = {**meaning(given, "relu"), "dw": filters_gradient(given, "relu")}
    for name in ("dx", "dgamma", "dbeta", "dw"):
        assert relative_error(ours[name], theirs[name]) <= 2e-3, name
