"""Calls operations of the native library on the device at hand, for tests."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from renaissance.lowering.calls.ffi import functional
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.program.fused import launches_for


@functools.cache
def _launches() -> Any:
    return launches_for(jax.local_devices()[0])


def on_device() -> bool:
    """Whether operations run as CUDA kernels."""
    return jax.default_backend() == "gpu"


def run(target: Target, *operands: Any, **attributes: Any) -> Any:
    """The operation on arrays, by the host's loops or the device's kernels."""
    given = tuple(None if operand is None else Argument("array") for operand in operands)
    launches = _launches()(InPlaceCall(target, given, attributes))
    return functional(target, *operands, launches=launches, **attributes)


def struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """A result of an operation."""
    return jax.ShapeDtypeStruct(shape, dtype)


def relative_error(ours: Any, reference: Any) -> float:
    """The norm of the difference over the reference's; infinite where ours is not finite."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    if not np.isfinite(ours).all():
        return float("inf")
    return float(np.linalg.norm(ours - reference) / max(float(np.linalg.norm(reference)), 1e-30))


def assert_close(ours: Any, reference: Any, dtype: Any) -> None:
    """Within the tolerance of a type: 1e-5 for float32, 2e-3 for float16."""
    limit = 1e-5 if np.dtype(dtype) == np.float32 else 2e-3
    assert relative_error(ours, reference) <= limit
