"""The zeros of a strided gradient are left out where its one reader can do without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.rewrites import simplify
from renaissance.lowering.rewrites.strided_gradients import keep_strided_gradients_small
from renaissance.runtime import library

N, H, W, C, K = 2, 5, 8, 16, 24
P, Q = 3, 4
MAP = 2 * N * H * W * C
WHOLE = Location(Bank.SCRATCH, 4096, MAP, "dx")
DY = Location(Bank.SCRATCH, 0, 2 * N * P * Q * K, "dy")


def dgrad(**other: int) -> InPlaceCall:
    sizes = {"n": N, "h": H, "w": W, "c": C, "k": K, "p": P, "q": Q, "r": 1, "s": 1}
    sizes |= {"stride": 2, "pad": 0, "groups": 1, "type": 1, **other}
    return InPlaceCall(targets.CONV_BACKWARD_DATA, (DY, None, WHOLE, None), sizes, "shortcut")


def norm(position: int, place: Location = WHOLE, **other: int) -> InPlaceCall:
    operands: list[Operand] = [None] * 22
    operands[position] = place
    sizes = {**dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad"), 0), **other}
    sizes |= {"rows": N * H * W, "c": C, "activation": 1}
    return InPlaceCall(targets.BATCH_NORM_BACKWARD, tuple(operands), sizes, "add")


def test_what_is_left_is_a_convolution_of_stride_one_and_a_grid_for_the_reader() -> None:
    convolution, reader = keep_strided_gradients_small([dgrad(), norm(20)])
    small = replace(WHOLE, nbytes=2 * N * P * Q * C)
    assert convolution.operands[2] == reader.operands[20] == small
    a = convolution.attributes
    assert (a["h"], a["w"], a["p"], a["q"], a["stride"]) == (P, Q, P, Q, 1)
    grid = {name: reader.attributes[name] for name in ("n", "h", "w", "p", "q", "stride")}
    assert grid == {"n": N, "h": H, "w": W, "p": P, "q": Q, "stride": 2}


@pytest.mark.parametrize(
    "calls",
    [
        [dgrad(r=3, s=3, pad=1), norm(20)],
        [dgrad(stride=1), norm(20)],
        [dgrad(), norm(0)],
        [dgrad(), norm(20, kernel=3, stride=2)],
        [dgrad(), norm(20, replace(WHOLE, nbytes=MAP // 2))],
        [dgrad(), norm(20), norm(0)],
        [dgrad()],
    ],
    ids=["3x3", "stride 1", "not the addend", "a pool", "half", "read twice", "never read"],
)
def test_others_stay(calls: list[InPlaceCall]) -> None:
    assert keep_strided_gradients_small(calls) == calls


BASIC = (rn.block(16, rn.RESNET_3_3), rn.block(24, rn.RESNET_3_3_DS))
BOTTLENECK = (rn.block(8, 32, rn.RESNET_1_3_1), rn.block(8, 48, rn.RESNET_1_3_1_DS))


@pytest.mark.skipif(not library.status().custom_calls, reason=library.status().message)
@pytest.mark.parametrize("blocks", [BASIC, BOTTLENECK], ids=["basic", "bottleneck"])
def test_a_step_of_a_network_keeps_its_bits(
    blocks: tuple[rn.Layer, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = rn.seq(rn.cbr(16, 3, 1, 1), *blocks, rn.gap(), rn.fc(7))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((3, 9, 7, 3)).astype(np.float32)
    labels = rng.integers(0, 7, 3).astype(np.int32)
    hashes, strided = [], []
    for rewrite in (keep_strided_gradients_small, list):
        monkeypatch.setattr(simplify, "keep_strided_gradients_small", rewrite)
        program = rn.compile(net, (9, 7, 3), 3, lowering="fused", amp=True, num_classes=7)
        calls = train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls
        dgrads = [c.attributes for c in calls if c.target == targets.CONV_BACKWARD_DATA]
        strided.append(sum(a["stride"] > 1 and a["r"] == 1 for a in dgrads))
        state, _ = program.train_step(program.init(1), (images, labels))
        hashes.append(program.sha256(state))
    assert hashes[0] == hashes[1]
    assert strided == [0, 1]
