"""The two gradients of a pointwise convolution behind a norm become one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.pointwise_backward import GATE, PRODUCT
from renaissance.lowering.launches.pointwise_gradients import DW, WEIGHT_PARTIAL, shape_of
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.lowering.rewrites import pointwise_backward, pointwise_gradients
from renaissance.lowering.rewrites.pointwise_gradients import fuse_pointwise_gradients
from renaissance.runtime import library

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

ROWS, C, K = 8192, 96, 24
JOINED = targets.POINTWISE_BACKWARD


def place(name: str, at: int, nbytes: int) -> Location:
    return Location(Bank.SCRATCH, at << 21, nbytes, name)


DY, X_OF, A, DZ, DX = (
    place(name, i, ROWS * channels * 2)
    for i, (name, channels) in enumerate((("dy", K), ("x", C), ("a", C), ("dz", C), ("dx", C)))
)
W, DW_OF, WORKSPACE = place("w", 5, K * C * 2), place("dw", 6, K * C * 2), place("ws", 7, 1 << 20)
NORM_OF = tuple(place(f"constant {i}", 8 + i, 4 * C) for i in range(4))
SUMS, DGAMMA, DBETA = place("sums", 13, 1 << 18), place("dg", 14, 4 * C), place("db", 15, 4 * C)


def step(**change: Any) -> list[InPlaceCall]:
    window = {"n": 2, "h": 64, "w": 64, "p": 64, "q": 64, "r": 1, "s": 1, "c": C, "k": K}
    window |= {"stride": 1, "pad": 0, "groups": 1, "type": 1, "workspace_bytes": 0, **change}
    norm = (DZ, None, None, X_OF, *NORM_OF, *[None] * 5, DX, DGAMMA, DBETA, *[None] * 3, SUMS)
    sizes = {"rows": ROWS, "c": C, "type": 1, "activation": 2}
    backward = {**sizes, "k": K, "partial_rows": 9}
    made: tuple[Operand, ...] = (X_OF, *NORM_OF, *[None] * 5, A, None, None)
    return [
        InPlaceCall(targets.BATCH_NORM_APPLY, made, sizes, "norm"),
        InPlaceCall(targets.CONV_BACKWARD_WEIGHT, (A, DY, DW_OF, WORKSPACE), window, "conv"),
        InPlaceCall(
            targets.POINTWISE_BACKWARD_DATA, (DY, W, *norm, None, None), backward, "norm"
        ),
    ]  # fmt: skip


def with_operand(calls: list[InPlaceCall], index: int, at: int, new: Operand) -> list[InPlaceCall]:
    operands = list(calls[index].operands)
    operands[at] = new
    calls[index] = replace(calls[index], operands=tuple(operands))
    return calls


def test_both_gradients_become_one_call_that_does_not_read_the_activated_map() -> None:
    calls = step()
    norm, both = fuse_pointwise_gradients(calls)
    assert norm == calls[0]
    assert both.target == JOINED
    assert both.operands[:DW] == calls[2].operands
    assert (both.operands[DW], both.operands[WEIGHT_PARTIAL]) == (DW_OF, WORKSPACE)
    assert A not in both.operands
    rows = both.attributes["partial_rows"]
    assert 0 < rows <= min(SUMS.nbytes // (8 * C), WORKSPACE.nbytes // (4 * K * C))
    assert launches_of(both)[0].grid[1] == rows
    apart, joined = (work_of(call) for call in (calls[2], both))
    assert (joined.nbytes - apart.nbytes, joined.flops) == (DW_OF.nbytes, 2 * apart.flops)


def test_the_norm_may_still_stand_behind_the_gradient_of_the_input() -> None:
    norm, weight, data = step()
    convolution = replace(weight, target=targets.CONV_BACKWARD_DATA, operands=(DY, W, DZ, None))
    backward = replace(data, target=targets.BATCH_NORM_BACKWARD, operands=data.operands[2:])
    found = fuse_pointwise_gradients([norm, weight, convolution, backward])
    assert found[1:] == fuse_pointwise_gradients([norm, weight, data])[1:]
    between = replace(norm, operands=(X_OF, *NORM_OF, *[None] * 5, DX, None, None))
    calls = [norm, weight, convolution, between, backward]
    assert fuse_pointwise_gradients(calls) == calls


@pytest.mark.parametrize(
    "calls",
    [
        step(stride=2),
        step(k=K + 8),
        with_operand(step(), 1, 1, place("another dy", 20, DY.nbytes)),
        with_operand(step(), 1, 0, X_OF),
        with_operand(step(), 1, 3, place("small", 7, 4 * K * C - 4)),
        with_operand(step(), 1, 3, replace(WORKSPACE, offset=DZ.offset)),
        with_operand(step(), 0, 5, DZ),
        with_operand(step(), 0, 3, NORM_OF[0]),
        with_operand(step(), 2, GATE, A),
        with_operand(step(), 2, PRODUCT, None),
        [*step()[:1], step()[2], step()[1]],
        step()[1:],
        [replace(step()[0], attributes={"activation": 1}), *step()[1:]],
    ],
    ids=[
        "stride", "another convolution", "another gradient", "another input", "no room",
        "sums where dz is", "shortcut", "another norm", "gate", "no product", "other order",
        "no norm", "activation",
    ],
)  # fmt: skip
def test_what_does_not_fit_stays(calls: list[InPlaceCall]) -> None:
    assert fuse_pointwise_gradients(calls) == calls


def test_few_pixels_and_channels_that_were_slower_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = step()
    monkeypatch.setattr(pointwise_gradients, "FEWEST_ROWS", ROWS + 1)
    assert fuse_pointwise_gradients(calls) == calls
    monkeypatch.setattr(pointwise_gradients, "FEWEST_ROWS", ROWS)
    assert len(fuse_pointwise_gradients(calls)) == 2
    monkeypatch.setattr(pointwise_gradients, "FASTER", frozenset())
    assert fuse_pointwise_gradients(calls) == calls


@pytest.mark.parametrize("limit", [99 << 10, 163 << 10, 227 << 10])
def test_every_joined_convolution_has_a_shape_on_every_device(limit: int) -> None:
    for k, c in pointwise_gradients.FASTER:
        shape = shape_of({"k": k, "c": c, "shared_limit": limit})
        assert shape is not None
        assert shape.tile.blocks * (shape.shared_bytes(k) + 1024) <= limit + 1024


def test_a_step_of_a_network_keeps_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (rn.conv(8, 3, 2, 1), rn.bn(), rn.relu6(), rn.mbconv(6, 16, 2), rn.mbconv(6, 16, 1))
    layers = rn.seq(*first, rn.gap(), rn.fc(7))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((6, 15, 17, 3)).astype(np.float32)
    labels = rng.integers(0, 7, 6).astype(np.int32)
    monkeypatch.setattr(pointwise_backward, "FEWEST_ROWS", 1)
    monkeypatch.setattr(pointwise_gradients, "FASTER", frozenset(((16, 48), (16, 96))))
    hashes, found = [], []
    for fewest in (1, 1 << 30):
        monkeypatch.setattr(pointwise_gradients, "FEWEST_ROWS", fewest)
        program = rn.compile(layers, (15, 17, 3), 6, lowering="fused", amp=True, num_classes=7)
        calls = train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls
        found.append(sum(call.target == JOINED for call in calls))
        state, _ = program.train_step(program.init(1), (images, labels))
        hashes.append(program.sha256(state))
    assert found == [2, 0]
    assert hashes[0] == hashes[1]
