"""1x1 convolutions joined with the norms before them: where that is allowed, and whole steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Variant
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.pointwise import MASK, prologue_of, shape_of, shared_bytes
from renaissance.lowering.rewrites import pointwise as fuse_pointwise
from renaissance.runtime import library
from tests.lowering.native import on_device

ROWS, CLASSES = 4, 5


def network() -> rn.Layer:
    """Every way in which a 1x1 convolution follows a norm, and some in which it does not."""
    ends = (rn.block(8, 16, rn.RESNET_1_3_1), rn.block(8, 24, rn.RESNET_1_3_1_DS))
    linear = (rn.mbconv(6, 24, 1), rn.mbconv(6, 16, 2), rn.mbconv(1, 12, 1))
    return rn.seq(rn.cbr(16, 3, 1, 1), *ends, *linear, rn.gap(), rn.fc(CLASSES))


def program(lowering: str) -> rn.Program:
    return rn.compile(
        network(), (9, 7, 3), ROWS, lowering=lowering, amp=True, num_classes=CLASSES,
        optimizer=rn.SGD(momentum=0.9), scheduler=rn.Constant(0.01),
        loss_scale=rn.LossScale(initial=256.0),
    )  # fmt: skip


def step_of(compiled: rn.Program) -> list[InPlaceCall]:
    scene = Scene(compiled.graph.memory[Variant.TRAIN_BASE], compiled.backend.recipe)
    return list(train_pass(compiled.graph, scene).calls)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    def pays(call: InPlaceCall) -> bool:
        a = call.attributes
        return shape_of(a["c"], a["k"], prologue_of(call)) is not None

    monkeypatch.setattr(fuse_pointwise, "pays", pays)


def test_small_maps_keep_their_separate_calls() -> None:
    assert targets.POINTWISE_FORWARD not in {c.target for c in step_of(program("xla"))}


def test_every_kind_of_norm_is_joined(always: None) -> None:
    calls = step_of(program("xla"))
    joined = [c for c in calls if c.target == targets.POINTWISE_FORWARD]
    assert {prologue_of(c) for c in joined} == {1, 2, 3}
    assert any(c.operands[MASK] is not None for c in joined)
    left = [c for c in calls if fuse_pointwise.is_pointwise(c)]
    assert all(c.attributes["k"] % 8 for c in left)
    made = {c.operands[10] for c in calls if c.target == targets.BATCH_NORM_APPLY}
    assert not made & {c.operands[10] for c in joined}


def step_of_without_joins() -> list[InPlaceCall]:
    compiled = program("xla")
    scene = Scene(compiled.graph.memory[Variant.TRAIN_BASE], compiled.backend.recipe)
    return list(train_pass(compiled.graph, scene, simplified=False).calls)


def test_a_joined_step_gives_what_the_separate_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    if not library.status().custom_calls:
        pytest.skip(library.status().message)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((ROWS, 9, 7, 3)).astype(np.float32)
    labels = rng.integers(0, CLASSES, ROWS).astype(np.int32)
    losses, hashes = [], []
    for pays in (lambda _: False, lambda call: call.attributes["k"] % 8 == 0):
        monkeypatch.setattr(fuse_pointwise, "pays", pays)
        compiled = program("fused")
        state, metrics = compiled.train_step(compiled.init(0), (images, labels))
        losses.append(float(metrics["loss"]))
        hashes.append(compiled.sha256(state))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert on_device() or hashes[0] == hashes[1]


def a_pair() -> list[InPlaceCall]:
    """A norm, a convolution that reads the same map and shares its scratch, and a 1x1 one."""
    calls = step_of_without_joins()
    for index, call in enumerate(calls):
        if fuse_pointwise.is_pointwise(call):
            norm = fuse_pointwise.norm_before(calls, index)
            if norm is not None and index - norm == 2:
                return calls[norm : index + 1]
    raise AssertionError("no block whose input is projected")


def test_a_convolution_passes_one_that_uses_the_same_scratch(always: None) -> None:
    calls = a_pair()
    joined, other = fuse_pointwise.fuse_pointwise(calls)
    assert joined.target == targets.POINTWISE_FORWARD
    assert other == calls[1]


def test_a_pair_stays_apart_where_the_memory_between_is_used(always: None) -> None:
    calls = a_pair()
    output = calls[2].operands[2]
    assert isinstance(output, Location)
    reader = InPlaceCall(targets.ADD_FORWARD, (output, output, calls[0].operands[10], None), {})
    apart = fuse_pointwise.fuse_pointwise([calls[0], reader, calls[2]])
    assert [c.target for c in apart[:2]] == [targets.BATCH_NORM_APPLY, targets.ADD_FORWARD]
    assert prologue_of(apart[2]) == 0


@pytest.mark.parametrize("position", [0, 10])
def test_a_norm_in_place_of_an_operand_stays_apart(always: None, position: int) -> None:
    """A block that shares rows with another would read what that has written."""
    norm, _, convolution = a_pair()
    operands = list(norm.operands)
    operands[position] = norm.operands[10 - position]
    operands[10] = replace(operands[0]) if position else operands[10]
    changed = replace(norm, operands=tuple(operands))
    follow = replace(convolution, operands=(operands[10], *convolution.operands[1:]))
    apart = fuse_pointwise.fuse_pointwise([changed, follow])
    assert apart[0] == changed and len(apart) == 2
    assert prologue_of(apart[1]) == 0


@pytest.mark.parametrize("limit", [99, 163, 227])
def test_a_cut_fits_the_device(limit: int) -> None:
    for c, k, prologue in ((256, 128, 2), (256, 64, 3), (576, 96, 1), (96, 576, 2), (64, 256, 1)):
        shape = shape_of(c, k, prologue, limit << 10)
        assert shape is not None
        assert k % shape.filters == 0
        assert shared_bytes(shape, c, prologue) * shape.blocks <= limit << 10
    assert shape_of(256, 60, 2) is None
