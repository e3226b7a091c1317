"""The measure of difference, and what a failed comparison says."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.testing import assert_within, relative_error, worst_tensor

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ours", "reference", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([0.0, 0.0], [3.0, 4.0], 1.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1e-30, 0.0], [0.0, 0.0], INF),
        ([NAN, 4.0], [3.0, 4.0], INF),
        ([3.0, 4.0], [NAN, 4.0], INF),
        ([NAN], [NAN], INF),
        ([INF, 4.0], [3.0, 4.0], INF),
        ([INF, 4.0], [INF, 4.0], 0.0),
        ([INF, 4.0], [-INF, 4.0], INF),
        ([], [], 0.0),
    ],
)
def test_relative_error(ours: list[float], reference: list[float], error: float) -> None:
    assert relative_error(np.array(ours), np.array(reference)) == pytest.approx(error)


def test_half_precision_is_compared_without_overflow() -> None:
    large = np.full(100, 6e4, np.float16)
    assert relative_error(large, large * np.float16(0.5)) == pytest.approx(1.0, rel=1e-3)


def test_a_small_reference_can_be_given_a_least_size() -> None:
    assert relative_error([1e-9, 0.0], [0.0, 0.0], least=1e-3) == pytest.approx(1e-6 / 2**0.5)


def test_shapes_must_be_equal() -> None:
    with pytest.raises(AssertionError, match=r"shape is \(2,\), expected \(2, 1\)"):
        relative_error(np.zeros(2), np.zeros((2, 1)))


REFERENCE = {"conv1.weight": np.ones(4), "bn1.bias": np.full(2, 1e-6), "fc1.bias": np.ones(3)}


def test_the_worst_tensor_is_named() -> None:
    ours = REFERENCE | {"fc1.bias": np.full(3, 1.5), "conv1.weight": np.full(4, 1.25)}
    assert worst_tensor(ours, REFERENCE) == ("fc1.bias", 0.5)
    with pytest.raises(AssertionError, match="^step 2: fc1.bias differs by 0.5, expected at most"):
        assert_within(ours, REFERENCE, 0.1, "step 2")
    assert_within(ours, REFERENCE, 0.5)


def test_a_tensor_far_below_the_others_can_be_measured_against_them() -> None:
    ours = REFERENCE | {"bn1.bias": np.full(2, 3e-6)}
    assert worst_tensor(ours, REFERENCE) == ("bn1.bias", pytest.approx(2.0))
    assert worst_tensor(ours, REFERENCE, floor=1e-3) == ("bn1.bias", pytest.approx(2e-3))


def test_names_and_shapes_must_be_equal() -> None:
    with pytest.raises(
        AssertionError, match=r"missing \['fc1.bias'\], not expected \['fc2.bias'\]"
    ):
        worst_tensor({"fc2.bias": 1.0}, {"fc1.bias": 1.0})
    with pytest.raises(AssertionError, match=r"fc1.bias: shape is \(\), expected \(3,\)"):
        worst_tensor({"fc1.bias": 1.0}, {"fc1.bias": np.ones(3)})


def test_nan_never_passes() -> None:
    with pytest.raises(AssertionError, match="tensor differs by inf"):
        assert_within(np.array([NAN]), np.array([1.0]), 1e9)
