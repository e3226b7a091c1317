"""The input gradient of a 3x3 convolution of 64 channels and the norm behind it become one call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.order import reads, writes
from renaissance.lowering.launches.convolutions import convolution_of
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.lowering.rewrites.conv3x3_backward import fuse_conv3x3_backward

MAP = 256 * 56 * 56 * 64 * 2
DY, PRODUCT, X, DX = (Location(Bank.SCRATCH, i * MAP, MAP, f"map {i}") for i in range(4))
W = Location(Bank.PERSISTENT, 0, 9 * 64 * 64 * 2, "w")
VECTORS = [Location(Bank.PERSISTENT, (1 << 20) + 256 * i, 256, "vector") for i in range(6)]
PARTIAL = Location(Bank.SCRATCH, 4 * MAP, 264 * 512, "partial")
WORKSPACE = replace(PARTIAL, nbytes=1 << 20, label="workspace")


def pair(**other: int) -> list[InPlaceCall]:
    sizes = {"n": 256, "h": 56, "w": 56, "c": 64, "k": 64, "p": 56, "q": 56, "r": 3, "s": 3}
    sizes |= {"stride": 1, "pad": 1, "groups": 1, "type": 1, "workspace_bytes": 1 << 20, **other}
    dgrad = InPlaceCall(targets.CONV_BACKWARD_DATA, (DY, W, PRODUCT, WORKSPACE), sizes, "conv")
    operands: list[Operand] = [PRODUCT, None, None, X, *VECTORS[:4], *[None] * 5, DX, *VECTORS[4:]]
    operands += [None, None, None, PARTIAL, None, None]
    more = {"rows": 256 * 56 * 56, "c": 64, "type": 1, "activation": 1, "partial_rows": 264}
    more |= {"kernel": 0, "argmax_bytes": 0, "n": 0, "h": 0}
    return [dgrad, InPlaceCall(targets.BATCH_NORM_BACKWARD, tuple(operands), more, "bn")]


def test_a_pair_becomes_one_call_that_any_device_runs() -> None:
    (joined,) = fuse_conv3x3_backward(pair())
    assert joined.target == targets.CONV_BACKWARD_DATA_NORM and joined.attributes["n"] == 256
    assert {PRODUCT, DX, PARTIAL, WORKSPACE} <= set(writes(joined))
    assert {DY, W, X, *VECTORS[:4]} == set(reads(joined))
    names = [launch.kernel.name for launch in launches_of(joined)]
    behind = ["batch_norm_backward_finalise_kernel", "batch_norm_backward_apply_kernel"]
    assert names == ["conv3x3_kernel", *behind] and convolution_of(joined) is None
    other = replace(joined, attributes={**joined.attributes, "warpgroups": False})
    names = [launch.kernel.name for launch in launches_of(other)]
    assert {"batch_norm_backward_sums_kernel", *behind} == set(names)
    found = convolution_of(other)
    assert found is not None and found.kind == "backward_data"
    assert work_of(joined).flops == work_of(pair()[0]).flops
    apart = sum(work_of(call).nbytes for call in pair())
    assert work_of(joined).nbytes == apart - MAP, "the first pass finds the product on the chip"


@pytest.mark.parametrize(
    ("place", "operand"), [(1, X), (2, X), (8, X), (16, DX), (20, X), (21, X), (13, None)]
)
def test_what_a_norm_must_not_have(place: int, operand: Operand) -> None:
    dgrad, norm = pair()
    operands = tuple(operand if i == place else o for i, o in enumerate(norm.operands))
    calls = [dgrad, replace(norm, operands=operands)]
    assert fuse_conv3x3_backward(calls) == calls


def test_calls_that_stay_apart() -> None:
    dgrad, norm = pair()
    again = InPlaceCall(targets.ADD_FORWARD, (PRODUCT, X, DX, None), {}, "reader")
    silu = replace(norm, attributes={**norm.attributes, "activation": 4})
    spoiled = replace(dgrad, operands=(PARTIAL, *dgrad.operands[1:]))
    for calls in (
        [dgrad, norm, again],
        [dgrad, silu],
        [dgrad, again, norm],
        [spoiled, norm],
        pair(stride=2),
        pair(n=128),
    ):
        assert fuse_conv3x3_backward(calls) == calls
