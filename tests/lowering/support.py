"""How every layer is held against its golden numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.testing import Golden, assert_within, golden_normal

GOLDEN = Path(__file__).parent.parent / "golden"

# fp64 is held against numbers stored in fp32, so their rounding is what is left.
TOLERANCE = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-7}


def load(file: str, *layers: str) -> list[Golden]:
    """The cases of a golden file that belong to some layers."""
    cases = Golden.load(GOLDEN / f"{file}.npz").values()
    return [case for case in cases if case.options["layer"] in layers]


def value_and_gradients(
    function: Callable[..., jax.Array], dy: Any, inputs: Mapping[str, Any], dtype: str
) -> dict[str, np.ndarray]:
    """``y`` and the gradient ``d<name>`` of every input, computed in a dtype under ``jax.jit``."""

    @jax.jit
    def run(inputs: dict[str, jax.Array], dy: jax.Array) -> dict[str, jax.Array]:
        y, backward = jax.vjp(lambda values: function(**values), inputs)
        (gradients,) = backward(dy.astype(y.dtype))
        return {"y": y, **{f"d{name}": value for name, value in gradients.items()}}

    with jax.enable_x64(dtype == "float64"):
        arrays = {name: jnp.asarray(value, dtype) for name, value in inputs.items()}
        results = run(arrays, jnp.asarray(dy, dtype))
        assert all(str(value.dtype) == dtype for value in results.values())
        return {name: np.asarray(value) for name, value in results.items()}


def assert_golden(
    case: Golden,
    function: Callable[..., jax.Array],
    inputs: Mapping[str, Any],
    dtype: str,
    factor: float = 1.0,
) -> None:
    """Hold ``y`` and all gradients against a golden case."""
    dy = golden_normal(f"{case.name}/dy", case.tensors["y"].shape)
    ours = value_and_gradients(function, dy, inputs, dtype)
    expected = {name: case.tensors[name] for name in ours}
    assert_within(ours, expected, TOLERANCE[dtype] * factor, f"{case.name} in {dtype}")


def drawn(case: Golden, tensor: str, shape: Any) -> np.ndarray:
    """An input of a golden case."""
    return golden_normal(f"{case.name}/{tensor}", tuple(shape))
