"""Which calls of a step become the fused backward of a depthwise convolution, and which do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.lowering.rewrites.depthwise_backward import fuse_depthwise_backward

N, SIDE, C = 4, 14, 16
MAP = N * SIDE * SIDE * C * 2
RELU6 = 2


def place(name: str, slot: int, nbytes: int = MAP) -> Location:
    return Location(Bank.SCRATCH, slot * (1 << 20), nbytes, name)


def norm(slot: int) -> tuple[Operand, ...]:
    return tuple(place(f"constant {i}", slot + i, 4 * C) for i in range(4))


X, A, Y = place("x", 0), place("activated", 1), place("y", 2)
DZ, DY, DA, DX = place("dz", 3), place("dy", 4), place("da", 3), place("dx", 4)
SUMS = place("sums", 5, 4 * 512 * C * 2)
W, DW = place("w", 6, 18 * C), place("dw", 7, 18 * C)
WORKSPACE = place("workspace", 8)
BEFORE, BEHIND = norm(10), norm(20)


def backward(dy: Operand, x: Operand, constants: Any, dx: Operand, slot: int) -> InPlaceCall:
    gradients = (place("dgamma", slot, 4 * C), place("dbeta", slot + 1, 4 * C))
    operands = (dy, None, None, x, *constants, *[None] * 5, dx, *gradients, *[None] * 3, SUMS)
    pool = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad", "argmax_bytes"), 0)
    sizes = {**pool, "rows": N * SIDE * SIDE, "c": C, "partial_rows": 20}
    sizes |= {"type": 1, "activation": RELU6}
    return InPlaceCall(targets.BATCH_NORM_BACKWARD, (*operands, None, None), sizes, "norm")


def step(stride: int = 1, **change: Any) -> list[InPlaceCall]:
    sizes: dict[str, Any] = {"n": N, "h": SIDE, "w": SIDE, "c": C, "k": C, "p": SIDE, "q": SIDE}
    sizes |= {"r": 3, "s": 3, "stride": stride, "pad": 1, "groups": C, "type": 1, **change}
    apply = {"rows": N * SIDE * SIDE, "c": C, "type": 1, "activation": RELU6}
    operands: tuple[Operand, ...] = (X, *BEFORE, *[None] * 5, A, None, None)
    weight = (A, DY, DW, WORKSPACE)
    return [
        InPlaceCall(targets.BATCH_NORM_APPLY, operands, apply, "norm"),
        InPlaceCall(targets.DEPTHWISE_CONV_FORWARD, (A, W, Y), sizes, "conv"),
        backward(DZ, Y, BEHIND, DY, 30),
        InPlaceCall(
            targets.DEPTHWISE_CONV_BACKWARD_WEIGHT, weight, {**sizes, "partial_rows": 4}, "conv"
        ),
        InPlaceCall(targets.DEPTHWISE_CONV_BACKWARD_DATA, (DY, W, DA), sizes, "conv"),
        backward(DA, X, BEFORE, DX, 40),
    ]


def fused(calls: list[InPlaceCall]) -> InPlaceCall:
    (found,) = [c for c in calls if c.target == targets.DEPTHWISE_CONV_BACKWARD]
    return found


@pytest.mark.parametrize("swapped", [False, True])
def test_both_norms_join(swapped: bool) -> None:
    calls = step()
    if swapped:
        calls[3], calls[4] = calls[4], calls[3]
    result = fuse_depthwise_backward(calls)
    assert result[:2] == calls[:2]
    behind, both, before = result[2:]
    assert both.target == targets.DEPTHWISE_CONV_BACKWARD
    gradients = calls[2].operands[14:16]
    made = (DZ, Y, *BEHIND, *gradients, W, X, *BEFORE, DX, DW, WORKSPACE, SUMS)
    assert both.operands == made
    assert (both.attributes["y_activation"], both.attributes["x_activation"]) == (RELU6, RELU6)
    assert behind.operands[13] is None
    assert before.operands[0] == before.operands[13] == DX
    assert before.attributes["activation"] == 0
    assert before.attributes["partial_rows"] == both.attributes["partial_rows"]
    assert work_of(behind).nbytes < 2.1 * MAP
    assert work_of(both).nbytes < 4.1 * MAP
    assert work_of(before).nbytes < 3.1 * MAP


def test_what_is_left_of_the_norms_runs_one_pass_each() -> None:
    behind, both, before = fuse_depthwise_backward(step())[2:]
    names = [[launch.kernel.name for launch in launches_of(c)] for c in (behind, both, before)]
    assert names == [
        ["batch_norm_backward_sums_kernel", "batch_norm_backward_finalise_kernel"],
        ["depthwise_conv_backward_kernel", "depthwise_conv_backward_sum_kernel"],
        ["batch_norm_backward_finalise_kernel", "batch_norm_backward_apply_kernel"],
    ]


def test_a_norm_joins_whose_first_pass_has_joined_a_pointwise_convolution() -> None:
    calls = step()
    dy, w = place("dy of the next", 61), place("w of the next", 62)
    sizes = {**calls[2].attributes, "k": 8}
    operands = (dy, w, *calls[2].operands)
    calls[2] = InPlaceCall(targets.POINTWISE_BACKWARD_DATA, operands, sizes, "norm")
    behind, both, _ = fuse_depthwise_backward(calls)[2:]
    assert behind.target == targets.POINTWISE_BACKWARD_DATA
    assert (behind.operands[2], behind.operands[15]) == (DZ, None)
    assert both.operands[:8] == (DZ, Y, *BEHIND, *calls[2].operands[16:18])
    assert both.attributes["y_activation"] == 0
    assert len(launches_of(behind)) == 2


def joined(calls: list[InPlaceCall]) -> tuple[bool, bool]:
    """Whether the norms behind and before have joined."""
    call = fused(fuse_depthwise_backward(calls))
    return call.operands[1] is not None, call.operands[10] is not None


def test_a_norm_stays_apart_whose_gradient_something_else_reads() -> None:
    calls = step()
    add = InPlaceCall(targets.ADD_FORWARD, (DY, X, place("sum", 9), None), {}, "add")
    moved = [replace(c, operands=tuple(place("da", 50) if o == DA else o for o in c.operands))
             for c in calls]  # fmt: skip
    moved[2] = replace(moved[2], operands=(DZ, *moved[2].operands[1:]))
    assert joined(moved) == (True, True)
    elsewhere = [replace(c, operands=tuple(place("dx", 51) if o == DX and i == 5 else o
                                           for o in c.operands))
                 for i, c in enumerate(moved)]  # fmt: skip
    assert joined([*elsewhere, add]) == (False, True)


def test_a_norm_stays_apart_that_did_not_make_the_convolutions_input() -> None:
    calls = step()
    shortcut = (*calls[0].operands[:5], Y, *calls[0].operands[6:])
    calls[0] = replace(calls[0], operands=shortcut)
    # da would lie where dz is still read
    assert joined(calls) == (False, False)


def test_nothing_joins_that_does_not_fit() -> None:
    alone = [step(type=0), step(r=5, s=5), step(pad=0), step()]
    alone[3].insert(4, InPlaceCall(targets.CLEAR, (place("other", 60),), {"bytes": MAP}))
    alone.append([replace(c, operands=tuple(None if o == WORKSPACE else o for o in c.operands))
                  for c in step()])  # fmt: skip
    for calls in alone:
        assert fuse_depthwise_backward(calls) == calls
