"""Reading a compiled module back: a bank that was copied is found, and named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from renaissance.core.errors import PlanError
from renaissance.runtime.module_check import TEMP_LIMIT, TEMP_OF_CALL, check_module

BANKS = {"PERSISTENT": 4096, "SCRATCH": 8192}
GOOD = """HloModule jit_step, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY %main (p: u8[4096]) -> u8[4096] {
  %p = u8[4096]{0} parameter(0)
  %call.1 = (u8[4096]{0}) custom-call(%p), custom_call_target="rn_clear", api_version=API
  ROOT %out = u8[4096]{0} get-tuple-element(%call.1), index=0
}"""
COPIED = """HloModule jit_step
ENTRY %main (p: u8[8192]) -> u8[8192] {
  %p = u8[8192]{0} parameter(0)
  %copy.7 = u8[8192]{0} copy(%p)
  %call.2 = (u8[8192]{0}) custom-call(%copy.7), custom_call_target="rn_copy", api_version=API
  ROOT %out = u8[8192]{0} get-tuple-element(%call.2), index=0
}"""


def test_a_module_of_custom_calls_passes() -> None:
    check_module("step", GOOD, 0, BANKS)


def test_a_copy_is_refused_with_the_bank_and_the_call() -> None:
    with pytest.raises(
        PlanError, match=r"copy of bank SCRATCH \(copy copy.7\) for the call rn_copy"
    ):
        check_module("step", COPIED, 0, BANKS)


def test_memory_beside_the_banks_is_refused() -> None:
    limit = TEMP_LIMIT + TEMP_OF_CALL * GOOD.count(" custom-call(")
    check_module("step", GOOD, limit, BANKS)
    with pytest.raises(PlanError, match=rf"sets aside {limit + 1:,} bytes.* at most {limit:,}"):
        check_module("step", GOOD, limit + 1, BANKS)


def test_what_xla_really_compiles_is_understood() -> None:
    def keeps_two(bank: jax.Array) -> tuple[jax.Array, jax.Array]:
        return bank + jnp.uint8(1), bank

    bank = jax.ShapeDtypeStruct((4096,), jnp.uint8)
    text = jax.jit(keeps_two).lower(bank).compile().as_text()
    with pytest.raises(PlanError, match=r"copy of bank PERSISTENT"):
        check_module("step", text, 0, BANKS)
