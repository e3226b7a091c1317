"""Banks of a small network side by side in one array.

An executable's every donated array costs the host some microseconds a call, which a small network
feels. So its banks are planned apart, and the calls that are ready are moved to where their bank
begins in the one array, that of ``PERSISTENT``. Large networks keep their banks apart: beyond 2^31
bytes an index into an array is no longer 32 bits wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from renaissance.core.types import Bank
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand

JOINED_BYTES = 1 << 28
"""Networks of up to so many bytes have one array."""
_ALIGNMENT = 1024


class Sizes(Protocol):
    """What is needed of a memory plan."""

    def bank_bytes(self, bank: Bank) -> int: ...


def array_bytes(memory: Sizes) -> dict[Bank, int]:
    """Sizes of the arrays that a program's state consists of."""
    sizes = _used(memory)
    bases = bases_of(memory)
    if not bases:
        return sizes
    return {Bank.PERSISTENT: max(bases[bank] + size for bank, size in sizes.items())}


def bases_of(memory: Sizes) -> dict[Bank, int]:
    """Where each bank begins in the one array; empty where every bank has its own."""
    bases, end = {}, 0
    for bank, size in _used(memory).items():
        bases[bank] = end
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return bases if end <= JOINED_BYTES else {}


def moved(calls: Iterable[InPlaceCall], bases: Mapping[Bank, int]) -> tuple[InPlaceCall, ...]:
    """Calls on banks as calls on the one array, given where the banks begin in it."""

    def place(operand: Operand) -> Operand:
        if not isinstance(operand, Location):
            return operand
        return replace(operand, bank=Bank.PERSISTENT, offset=bases[operand.bank] + operand.offset)

    return tuple(replace(call, operands=tuple(map(place, call.operands))) for call in calls)


def _used(memory: Sizes) -> dict[Bank, int]:
    """The second input slot takes batches of another device: there is none."""
    banks = (bank for bank in Bank if bank is not Bank.INPUT_B)
    return {bank: size for bank in banks if (size := memory.bank_bytes(bank))}
