"""The joined 1x1 convolution of the native library, against the meaning of what it joins."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.runtime import library
from tests.lowering.pointwise import applied, check, forward, operands

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)


@pytest.mark.parametrize(
    ("rows", "c", "k", "activation"),
    [(1, 8, 8, "relu"), (397, 24, 56, None), (1030, 40, 24, "relu6"), (259, 128, 512, "relu")],
)
@pytest.mark.parametrize("prologue", range(4))
def test_a_joined_convolution(
    rows: int, c: int, k: int, prologue: int, activation: str | None
) -> None:
    given = operands(rows, rows, c, k, prologue)
    has_mask = prologue > 0 and activation is not None
    found = forward(given, activation, mask=has_mask)
    check(given, activation, found)
    if has_mask:
        separate = applied(given, activation)
        for name in ("y", "mask"):
            np.testing.assert_array_equal(found[name], separate[name])
