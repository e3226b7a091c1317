"""Executables compiled ahead of time: options that this XLA does not know, names of leaves."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import PlanError
from renaissance.runtime.executables import aot_compile


def test_an_option_that_is_not_known_is_left_out_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "renaissance"):
        made = aot_compile(
            "step", lambda s, x: s * x, jnp.ones(3), np.float32(2), options={"xla_no_such": 1}
        )
    assert "step: compiled without XLA's options {'xla_no_such': 1}" in caplog.text
    np.testing.assert_array_equal(made(jnp.ones(3), np.float32(2)), [2, 2, 2])


def test_a_leaf_that_is_not_given_back_in_place_is_named() -> None:
    arrays = jnp.ones(3), jnp.ones(4)

    def swapped(arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return arrays[0] + 1, jnp.ones(5)

    with (
        pytest.warns(UserWarning, match="donated buffers were not usable"),
        pytest.raises(PlanError, match=r"state leaf SCRATCH is aliased to input None"),
    ):
        aot_compile("step", swapped, arrays, leaves=["PERSISTENT", "SCRATCH"])
