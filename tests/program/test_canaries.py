"""Marked bytes between the tensors of every bank stay as they are, whatever a program does."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Bank, Variant
from renaissance.lowering.rewrites import joined_banks
from renaissance.runtime import library
from renaissance.runtime.arena import BankState
from tests.program.support import CLASSES, SHAPE, random_batch

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

CANARY = 0xAB
WHOLE = "WMVEAGR"
"""Roles whose regions a call walks as a whole, with the padding between their tensors."""


def net() -> rn.Layer:
    """Every family of kernels: dense and depthwise convolution, norm, pools, add, dropout, fc."""
    body = rn.seq(rn.conv(5, 3, 1, 1), rn.bn())
    return rn.seq(
        *(rn.conv(5, 3, 1, 1), rn.bn(), rn.relu(), rn.maxpool(2, 2, 0)),
        *(rn.add2(rn.identity(), body), rn.relu(), rn.conv_dw(3, 1, 1), rn.bn()),
        *(rn.gap(), rn.dropout(0.2), rn.fc(7), rn.silu(), rn.fc(CLASSES)),
    )


@pytest.fixture(params=[0, joined_banks.JOINED_BYTES], ids=["apart", "joined"], autouse=True)
def arrays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Arrays that the three banks lie in."""
    monkeypatch.setattr(joined_banks, "JOINED_BYTES", request.param)
    return 1 if request.param else 3


def free_bytes(program: rn.Program, array: Bank, size: int) -> np.ndarray:
    """Which bytes of an array of banks belong to no tensor of any variant."""
    free = np.ones(size, bool)
    bases = joined_banks.bases_of(program.memory)
    for variant in Variant:
        for tensor in program.graph.memory[variant].tensors.values():
            if tensor.bank in bases or tensor.bank is array:
                is_whole = tensor.region.name[0] in WHOLE
                base = bases.get(tensor.bank, 0)
                end = tensor.end if is_whole else tensor.offset + tensor.nbytes
                free[base + tensor.offset : base + end] = False
    return free


def marked(program: rn.Program, state: BankState) -> Iterator[tuple[Bank, np.ndarray, np.ndarray]]:
    """Every array of banks with its free bytes marked."""
    for bank, array in state.banks.items():
        content = np.array(array)
        free = free_bytes(program, bank, content.size)
        content[free] = CANARY
        yield bank, content, free


@pytest.mark.parametrize("amp", [False, True])
def test_no_bank_is_written_outside_its_tensors(amp: bool, arrays: int) -> None:
    program = rn.compile(net(), SHAPE, 8, amp=amp, ema=0.9, optimizer=rn.AdamW(), lowering="fused")
    state = program.init(0)
    assert isinstance(state, BankState)
    banks, free = {}, {}
    for bank, content, where in marked(program, state):
        banks[bank], free[bank] = jnp.array(content, copy=True), where
    assert len(free) == arrays
    assert all(free[bank].sum() > 1000 for bank in free if bank is not Bank.INPUT_A)
    state = BankState(state.arena, banks)
    for step in range(2):
        state, metrics = program.train_step(state, random_batch(step))
    assert np.isfinite(metrics["loss"])
    for ema in (False, True):
        program.evaluate(state, random_batch(2), ema=ema)
    state = program.clear_metrics(state)
    for bank, array in state.banks.items():
        wrong = np.flatnonzero(np.asarray(array)[free[bank]] != CANARY)
        assert not wrong.size, f"{wrong.size} marked bytes of {bank.name} changed"


def test_a_byte_outside_is_noticed() -> None:
    program = rn.compile(net(), SHAPE, 8, lowering="fused")
    state = program.init(0)
    assert isinstance(state, BankState)
    for bank, content, free in marked(program, state):
        bases = joined_banks.bases_of(program.memory)
        every = program.memory.tensors.values()
        tensors = [t for t in every if t.bank in bases or t.bank is bank]
        ends = [
            bases.get(t.bank, 0) + t.offset + t.nbytes
            for t in tensors
            if t.region.name[0] not in WHOLE
        ]
        for end in (end for end in ends if end < content.size and content[end] == CANARY):
            assert free[end]
            break
        else:
            assert bank in (Bank.INPUT_A, Bank.INPUT_B), f"{bank.name} holds no canary"
