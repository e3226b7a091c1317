"""validate() finds every kind of damage, and names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from renaissance.core.errors import PlanError
from renaissance.core.types import Bank, Region, Variant
from renaissance.graph.blueprint import RESNET_3_3 as BASIC
from renaissance.graph.blueprint import block, bn, conv, fc, gap, repeat, seq
from renaissance.graph.computation_graph import Ref
from renaissance.graph.memory_plan import Layout, MemoryPlan
from renaissance.graph.options import ShapeId
from tests.graph.support import compiled


def damaged(change) -> MemoryPlan:
    result = compiled(seq(conv(4, 3, 1, 1), bn(), repeat(block(4, BASIC), 2), gap(), fc(3)))
    layout = result.memory[0].layout
    layout = Layout(
        dict(layout.spans),
        dict(layout.slots),
        dict(layout.offsets),
        dict(layout.lives),
        dict(layout.bank_bytes),
    )
    change(layout)
    return MemoryPlan(layout, (Variant.TRAIN_BASE,), ShapeId(4, 8, 8, 3))


def move(region: Region, name: str, by: int):
    def change(layout: Layout) -> None:
        layout.offsets[Ref(region, name)] += by

    return change


def gap_between(layout: Layout) -> None:
    span = layout.spans[Region.W_DEEP_CONV]
    layout.spans[Region.W_DEEP_CONV] = replace(span, offset=span.offset + 256)


def missing_region(layout: Layout) -> None:
    del layout.spans[Region.S_MASK]


def odd_size(layout: Layout) -> None:
    span = layout.spans[Region.T_TEMP_INT32]
    layout.spans[Region.T_TEMP_INT32] = replace(span, nbytes=span.nbytes + 8)


def wrong_bank(layout: Layout) -> None:
    layout.bank_bytes[Bank.SCRATCH] += 256


def small_slot(layout: Layout) -> None:
    ref = Ref(Region.W_FC_WEIGHT, "fc1.weight")
    layout.slots[ref] = replace(layout.slots[ref], nbytes=4)


def longer_life(layout: Layout) -> None:
    for ref, life in layout.lives.items():
        layout.lives[ref] = life._replace(begin=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing_region, "expected all 68 in order"),
        (gap_between, "W_DEEP_CONV begins at .* the end of the region before it"),
        (odd_size, "T_TEMP_INT32 has .* bytes, expected a multiple of 256"),
        (wrong_bank, "banks have"),
        (small_slot, "W_FC_WEIGHT/fc1.weight has 48 bytes, expected at most 4"),
        (move(Region.W_FC_WEIGHT, "fc1.weight", 8), "W_FC_WEIGHT/fc1.weight begins at .* 256"),
        (move(Region.W_FC_WEIGHT, "fc1.weight", 512), "expected inside its region"),
        (move(Region.W_BN_BIAS, "bn2.bias", 256), "W_BN_BIAS/bn3.bias at .* overlaps bn2.bias"),
        (move(Region.W_EQ_BIAS, "bn2.bias", -256), "overlaps"),
        (longer_life, "overlaps .* expected disjoint bytes while both live"),
    ],
)
def test_validate_finds(change, message):
    with pytest.raises(PlanError, match=message):
        damaged(change).validate()


def test_validate_finds_a_twin_out_of_step():
    plan = damaged(lambda layout: None)
    layout = plan.layout
    first, second = (Ref(Region.G_BN_BIAS, f"bn{n}.bias") for n in (1, 2))
    layout.offsets[first], layout.offsets[second] = layout.offsets[second], layout.offsets[first]
    with pytest.raises(PlanError, match="G_BN_BIAS/bn1.bias begins at element 64 .* expected 0"):
        plan.validate()
