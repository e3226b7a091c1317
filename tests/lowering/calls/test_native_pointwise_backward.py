"""A pointwise input gradient joined with the norm that reads it, against its meaning."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.lowering.launches import pointwise_backward as plans
from renaissance.lowering.launches.pointwise_backward import PointwiseShape
from renaissance.runtime import library
from tests.lowering.maps import on_a_grid
from tests.lowering.native import assert_close, on_device, relative_error
from tests.lowering.pointwise_backward import backward_data, meaning, names_of, operands

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

VARIANTS = [
    (333, 64, 256, "gate addend shortcut", "relu"),
    (700, 128, 64, "bits addend shortcut", "relu"),
    (130, 72, 40, "bits addend norms", "relu"),
    (257, 40, 144, "gate addend norms", "relu"),
    (65, 96, 16, "", None),
    (150, 24, 96, "", "relu6"),
    (201, 200, 136, "", "relu"),
    (700, 16, 24, "addend", None),
    (300, 48, 24, "addend shortcut", None),
]


@pytest.mark.parametrize(("rows", "k", "c", "variant", "activation"), VARIANTS)
def test_gradient_of_the_input_and_the_norm_that_reads_it(
    rows: int, k: int, c: int, variant: str, activation: str | None
) -> None:
    given = operands(rows, k, c, variant)
    ours = backward_data(given, activation, names_of(variant))
    theirs = meaning(given, activation)
    for name in names_of(variant):
        limit = 4e-3 if variant == "" else 2e-3  # a rounded z may fall on a kink
        assert relative_error(ours[name], theirs[name]) <= limit, name


def test_of_a_plain_norm_the_product_stays() -> None:
    given = operands(99, 48, 32, "")
    ours = backward_data(given, None, names_of(""))
    product = given["dy"].astype(np.float64) @ given["w"].astype(np.float64)
    assert_close(ours["product"], product, np.float16)


@pytest.mark.skipif(not on_device(), reason="only a device has warpgroups")
@pytest.mark.parametrize(
    "shape",
    [
        PointwiseShape(64, 128, 64, 3, 4, 2, 1, groups=True),
        PointwiseShape(64, 64, 64, 2, 4, 2, 1, groups=True),
        PointwiseShape(64, 64, 64, 4, 4, 1, 1, groups=True),
        PointwiseShape(128, 128, 64, 2, 8, 1, 1, groups=True),
        PointwiseShape(128, 64, 64, 2, 8, 1, 2, groups=True),
    ],
    ids=str,
)
def test_products_by_warpgroups(shape: PointwiseShape, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, k, c, variant = 20011, 200, 136, "bits addend shortcut"
    monkeypatch.setitem(plans.MEASURED, (k, c), shape)
    given = operands(rows, k, c, variant)
    ours = backward_data(given, "relu", names_of(variant))
    theirs = meaning(given, "relu")
    for name in names_of(variant):
        assert relative_error(ours[name], theirs[name]) <= 2e-3, name


@pytest.mark.parametrize(("k", "variant"), [(48, "bits addend shortcut"), (128, "addend norms")])
def test_an_addend_may_be_the_pixels_alone_that_a_strided_convolution_read(
    k: int, variant: str
) -> None:
    n, h, w, c = 3, 13, 10, 128
    given = operands(n * h * w, k, c, variant)
    spread, small, grid = on_a_grid(given["addend"].reshape(n, h, w, c), 2)
    names = names_of(variant)
    theirs = backward_data({**given, "addend": spread.reshape(-1, c)}, "relu", names)
    ours = backward_data({**given, "addend": small}, "relu", names, grid=grid)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name], name)
