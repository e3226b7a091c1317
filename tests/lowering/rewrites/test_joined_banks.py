"""Banks side by side in one array: where they begin, and what becomes of a call."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall, Location, Workspace
from renaissance.lowering.rewrites.joined_banks import JOINED_BYTES, array_bytes, bases_of, moved


@dataclass(frozen=True)
class Plan:
    """A plan's banks."""

    sizes: dict[Bank, int]

    def bank_bytes(self, bank: Bank) -> int:
        return self.sizes.get(bank, 0)


SMALL = Plan({Bank.PERSISTENT: 1500, Bank.SCRATCH: 4096, Bank.INPUT_A: 300, Bank.INPUT_B: 300})
BASES = {Bank.PERSISTENT: 0, Bank.SCRATCH: 2048, Bank.INPUT_A: 6144}


def test_small_banks_lie_one_behind_the_other() -> None:
    assert bases_of(SMALL) == BASES
    assert array_bytes(SMALL) == {Bank.PERSISTENT: 6144 + 300}


@pytest.mark.parametrize("size", [JOINED_BYTES + 1, 1 << 33])
def test_large_banks_stay_apart(size: int) -> None:
    plan = Plan({Bank.PERSISTENT: 1024, Bank.SCRATCH: size, Bank.INPUT_B: 8})
    assert bases_of(plan) == {}
    assert array_bytes(plan) == {Bank.PERSISTENT: 1024, Bank.SCRATCH: size}


def test_a_moved_call_differs_in_its_places_alone() -> None:
    kept = (None, Argument("images"), Workspace(64))
    places = (
        Location(Bank.PERSISTENT, 256, 8, "a"),
        Location(Bank.SCRATCH, 512, 16, "b"),
        Location(Bank.INPUT_A, 0, 300, "c"),
    )
    call = InPlaceCall(targets.COPY, (*places, *kept), {"n": 3}, "here")
    (after,) = moved([call], BASES)
    assert after.operands[3:] == kept
    assert [o.offset for o in after.operands[:3] if isinstance(o, Location)] == [256, 2560, 6144]
    assert after.banks == (Bank.PERSISTENT,)
    assert (after.target, after.attributes, after.where) == (call.target, call.attributes, "here")
