"""Marked bytes between the tensors of every bank stay as they are, whatever a program does."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Bank, Variant
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


def free_bytes(program: rn.Program, bank: Bank, size: int) -> np.ndarray:
    """Which bytes of a bank belong to no tensor of any variant."""
    free = np.ones(size, bool)
    for variant in Variant:
        for tensor in program.graph.memory[variant].tensors.values():
            if tensor.bank is bank:
                is_whole = tensor.region.name[0] in WHOLE
                payload = tensor.offset + tensor.nbytes
                free[tensor.offset : tensor.end if is_whole else payload] = False
    return free


def marked(program: rn.Program, state: BankState) -> Iterator[tuple[Bank, np.ndarray, np.ndarray]]:
    """Every bank with its free bytes marked."""
    for bank, array in state.banks.items():
        content = np.array(array)
        free = free_bytes(program, bank, content.size)
        content[free] = CANARY
        yield bank, content, free


@pytest.mark.parametrize("amp", [False, True])
def test_no_bank_is_written_outside_its_tensors(amp: bool) -> None:
    program = rn.compile(net(), SHAPE, 8, amp=amp, ema=0.9, optimizer=rn.AdamW(), lowering="fused")
    state = program.init(0)
    assert isinstance(state, BankState)
    banks, free = {}, {}
    for bank, content, where in marked(program, state):
        banks[bank], free[bank] = jnp.array(content, copy=True), where
    assert free[Bank.PERSISTENT].sum() > 1000 and free[Bank.SCRATCH].sum() > 1000
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
        tensors = [t for t in program.memory.tensors.values() if t.bank is bank]
        ends = [t.offset + t.nbytes for t in tensors if t.region.name[0] not in WHOLE]
        for end in (end for end in ends if end < content.size and content[end] == CANARY):
            assert free[end]
            break
        else:
            assert bank in (Bank.INPUT_A, Bank.INPUT_B), f"{bank.name} holds no canary"
