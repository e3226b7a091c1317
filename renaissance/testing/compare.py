"""One measure of difference everywhere: the norm of the error over the norm of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def relative_error(ours: Any, reference: Any, least: float = 0.0) -> float:
    """``|ours - reference| / |reference|`` over a whole tensor, in Euclidean norm and fp64.

    Args:
        ours: Any numeric array.
        reference: Array of the same shape.
        least: A reference whose root mean square is smaller is taken to be this large.

    Returns:
        The relative error; infinity if anything in ``ours`` is not finite where the reference is,
        or if the reference is all zero and ``ours`` is not.

    Raises:
        AssertionError: the shapes differ.
    """
    ours, reference = np.asarray(ours), np.asarray(reference)
    if ours.shape != reference.shape:
        raise AssertionError(f"shape is {ours.shape}, expected {reference.shape}")
    # Equal infinities would subtract to NaN, and they do agree.
    same = ours == reference
    ours = np.where(same, 0, ours).astype(np.float64)
    target = np.where(same, 0, reference).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.linalg.norm((ours - target).ravel()))
        scale = max(root_mean_square(reference), least) * max(reference.size, 1) ** 0.5
    if error == 0:
        return 0.0
    return error / scale if np.isfinite(error) and scale > 0 else float("inf")


def root_mean_square(tensor: Any) -> float:
    """Root of the mean square of a tensor's finite elements, in fp64; 0 if there are none."""
    values = np.asarray(tensor).astype(np.float64)
    values = np.where(np.isfinite(values), values, 0)
    return float(np.linalg.norm(values.ravel()) / max(values.size, 1) ** 0.5)


def worst_tensor(
    ours: Mapping[str, Any], reference: Mapping[str, Any], floor: float = 0.0
) -> tuple[str, float]:
    """The name of the tensor that differs most, and by how much.

    Args:
        ours: Arrays by name.
        reference: Arrays by name.
        floor: A tensor whose root mean square is below this part of the largest one's is measured
            against that part.

    Returns:
        ``(name, relative error)``; ``("", 0.0)`` for no tensors.

    Raises:
        AssertionError: the names or a tensor's shapes differ.
    """
    if set(ours) != set(reference):
        missing, extra = sorted(set(reference) - set(ours)), sorted(set(ours) - set(reference))
        raise AssertionError(f"tensors differ: missing {missing}, not expected {extra}")
    least = floor * max(map(root_mean_square, reference.values()), default=0.0) if floor else 0.0
    errors: dict[str, float] = {"": 0.0}
    for name in reference:
        try:
            errors[name] = relative_error(ours[name], reference[name], least)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    name = max(errors, key=lambda key: errors[key])
    return name, errors[name]


def assert_within(
    ours: Any, reference: Any, tolerance: float, what: str = "", floor: float = 0.0
) -> None:
    """Assert that tensors agree within a relative error; NaN fails.

    Args:
        ours: An array, or arrays by name.
        reference: The same structure.
        tolerance: Largest relative error allowed, per tensor.
        what: Said first when it fails.
        floor: As :func:`worst_tensor`.

    Raises:
        AssertionError: names the worst tensor and its error.
    """
    if not isinstance(reference, Mapping):
        ours, reference = {"tensor": ours}, {"tensor": reference}
    name, error = worst_tensor(ours, reference, floor)
    if not error <= tolerance:
        place = f"{what}: " if what else ""
        raise AssertionError(
            f"{place}{name} differs by {error:.3g}, expected at most {tolerance:g}"
        )
