"""The profile of a train step: every call once, its least work, sums that add up."""

from __future__ import annotations

from pathlib import Path

import pytest

import renaissance as rn
from renaissance.core.types import Bank, GraphId
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.launches.work import Work, work_of
from renaissance.program.profile_report import H200, Profile, ProfileRow, Rates
from renaissance.runtime import library
from tests.program.support import small_program

RATES = Rates(1e12, 1e9)


def place(nbytes: int) -> Location:
    return Location(Bank.SCRATCH, 0, nbytes, "x")


def test_bytes_and_operations_of_a_layer() -> None:
    sizes = {"n": 3, "c": 5, "k": 7, "type": 0, "activation": 0}
    x, w, y = place(3 * 5 * 4), place(5 * 7 * 4), place(3 * 7 * 4)
    forward = InPlaceCall(targets.FC_FORWARD, (x, w, None, y, None), sizes)
    assert work_of(forward) == Work(60 + 140 + 84, 2 * 3 * 5 * 7)
    weights = InPlaceCall(targets.FC_BACKWARD, (y, x, None, None, None, w, None, None), sizes)
    assert work_of(weights) == Work(84 + 60 + 140, 2 * 3 * 5 * 7)
    both = InPlaceCall(targets.FC_BACKWARD, (y, x, w, None, x, w, None, None), sizes)
    assert work_of(both).flops == 2 * work_of(weights).flops


def test_what_is_read_and_written_counts_twice_and_a_workspace_not_at_all() -> None:
    scaled = (place(100), place(4), place(4))
    assert work_of(InPlaceCall(targets.CHECK_AND_UNSCALE, scaled)).nbytes == 208
    shape = {"n": 2, "p": 3, "q": 3, "k": 4, "r": 3, "s": 3, "c": 6, "groups": 2}
    operands = (place(10), place(20), place(30), place(1 << 20))
    conv = InPlaceCall(targets.CONV_FORWARD, operands, shape)
    assert work_of(conv) == Work(60, 2 * (2 * 3 * 3 * 4) * 9 * 3)


def test_the_floor_is_the_larger_of_operations_and_bytes() -> None:
    assert Work(nbytes=4_300_000, flops=0).floor(H200.flops, H200.bandwidth) == pytest.approx(1e-6)
    assert Work(nbytes=1, flops=790_000_000).floor(H200.flops, H200.bandwidth) == pytest.approx(
        1e-6
    )


def profile_of(*rows: tuple[str, str, float, float]) -> Profile:
    held = (ProfileRow(s, n, us, 1000, 10**6, floor) for s, n, us, floor in rows)
    return Profile("net, batch 8", "amp", "fused", "cpu (cpu)", RATES, 50.0, tuple(held))


def test_what_loses_most_comes_first(tmp_path: Path) -> None:
    found = profile_of(("OPTIMIZER", "a", 9, 8), ("DEEP", "b", 4, 1), ("DEEP", "c", 5, 3))
    assert [row.segment for row in found.segments()] == ["DEEP", "OPTIMIZER"]
    assert [row.name for row in found.calls()] == ["b", "c", "a"]
    assert found.segments()[0].lost_us == 5
    text = found.table(most=2)
    assert "at best 1 TFLOP/s, 1 GB/s" in text and "... and 1 more" in text
    assert text.index("sum of calls") < text.index("\nb ")
    found.write_csv(tmp_path / "calls.csv")
    lines = (tmp_path / "calls.csv").read_text().splitlines()
    assert lines[1] == "OPTIMIZER,a,9.0000,1000,1000000,8.0000,1.0000" and len(lines) == 4


def test_the_xla_lowering_says_that_it_has_no_segments() -> None:
    found = small_program(lowering="xla").profile(repeats=1, rates=RATES)
    assert found.rows == () and found.step_us > 0
    assert "the XLA lowering compiles the step as a whole" in found.table()


@pytest.mark.skipif(not library.status().custom_calls, reason=library.status().message)
def test_every_call_of_a_fused_step_is_measured_and_belongs_to_a_segment() -> None:
    net = rn.seq(rn.conv(4, 3, 1, 1), rn.bn(), rn.relu(), rn.gap(), rn.fc(5))
    program = rn.compile(net, (6, 6, 3), 4, lowering="fused", optimizer=rn.SGD(momentum=0.9))
    found = program.profile(repeats=1, rates=RATES)
    names = [row.name for row in found.rows]
    assert "rn_conv_forward of conv1" in names and "rn_fc_forward of fc1" in names
    assert all(row.us > 0 for row in found.rows)
    segments = {row.name: row.segment for row in found.rows}
    assert segments["rn_fc_forward of fc1"] == GraphId.DEEP_FWD_BWD.name
    assert segments["rn_conv_forward of conv1"] == GraphId.FIRST_LAYER_FWD_A.name
    optimizer = next(row for row in found.rows if row.name.startswith("rn_optimizer"))
    assert optimizer.segment == GraphId.OPTIMIZER.name
    # weights and moments of 133 numbers and their padding, each read and written
    assert optimizer.nbytes >= 4 * (2 * 2 + 1) * program.plan.parameter_count
    assert sum(row.us for row in found.segments()) == pytest.approx(
        sum(row.us for row in found.rows)
    )


@pytest.mark.skipif(not library.status().custom_calls, reason=library.status().message)
def test_a_net_that_diverges_while_it_is_timed_is_measured_all_the_same() -> None:
    net = rn.seq(rn.fc(4), rn.relu(), rn.fc(5))
    program = rn.compile(net, (2, 2, 1), 4, lowering="fused", scheduler=rn.Constant(1e30))
    assert program.profile(repeats=1, rates=RATES).rows
