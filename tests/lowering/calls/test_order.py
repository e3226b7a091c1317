"""Calls change places only where no byte notices."""

from __future__ import annotations

import pytest

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.order import is_read_later, may_move, overlap, reads, writes


def at(offset: int, nbytes: int = 16, bank: Bank = Bank.SCRATCH) -> Location:
    return Location(bank, offset, nbytes, f"{bank.name} {offset}")


def pad(source: Location, result: Location) -> InPlaceCall:
    return InPlaceCall(targets.CHANNEL_PADDING, (source, result))


def test_bytes_overlap_only_within_a_bank() -> None:
    assert overlap(at(0), at(15))
    assert not overlap(at(0), at(16))
    assert not overlap(at(0), at(0, bank=Bank.INPUT_A))


def test_of_a_call_without_an_entry_every_operand_may_be_changed() -> None:
    call = InPlaceCall(targets.OPTIMIZER, (at(0), None, at(16)))
    assert reads(call) == ()
    assert writes(call) == (at(0), at(16))


def test_calls_that_read_the_same_may_change_places() -> None:
    calls = [pad(at(0), at(16)), pad(at(0), at(32))]
    assert may_move(calls, 1, 0)
    assert may_move(calls, 0, 1)


@pytest.mark.parametrize(
    "second", [pad(at(16), at(32)), pad(at(64), at(8)), pad(at(64), at(24))],
    ids=["reads the result", "writes the source", "writes the result"],
)  # fmt: skip
def test_calls_on_the_same_bytes_keep_their_order(second: InPlaceCall) -> None:
    calls = [pad(at(0), at(16)), second]
    assert not may_move(calls, 1, 0)
    assert not may_move(calls, 0, 1)


def test_only_what_is_crossed_counts() -> None:
    calls = [pad(at(0), at(16)), pad(at(64), at(80)), pad(at(16), at(32))]
    assert may_move(calls, 2, 1)
    assert not may_move(calls, 2, 0)


def test_a_place_is_read_until_it_is_written_whole() -> None:
    calls = [pad(at(0), at(16)), pad(at(64), at(16)), pad(at(16), at(32))]
    assert is_read_later(calls, 1, at(16))
    assert not is_read_later(calls, 0, at(16))
    assert not is_read_later(calls, 2, at(16))


def test_a_place_written_in_pieces_is_read_as_long_as_a_piece_is_left() -> None:
    first, second = pad(at(64), at(8, 16)), pad(at(64), at(24, 16))
    assert is_read_later([first, pad(at(24, 4), at(80))], -1, at(16))
    assert not is_read_later([first, pad(at(16, 4), at(80))], -1, at(16))
    assert not is_read_later([first, second, pad(at(16), at(80))], -1, at(16))
    assert not is_read_later([pad(at(64), at(20, 4)), pad(at(20, 4), at(80))], -1, at(16))
    assert is_read_later([pad(at(64), at(20, 4)), pad(at(24, 4), at(80))], -1, at(16))


def test_of_a_call_without_an_entry_every_operand_may_be_read() -> None:
    assert is_read_later([InPlaceCall(targets.OPTIMIZER, (at(0, 64),))], -1, at(16))
