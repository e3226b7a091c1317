"""Features in the bytes of gradients that are made when no feature lives any more."""

from __future__ import annotations

from itertools import pairwise

import pytest

from renaissance import models
from renaissance.core.errors import PlanError
from renaissance.core.types import Region
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import Ref
from renaissance.graph.memory_plan import Lifetime, MemoryPlan
from renaissance.graph.memory_plan.tenants import LANDLORDS, accommodate
from tests.graph.support import compiled

MIB = 1 << 20


@pytest.fixture(scope="module")
def vgg() -> CompiledGraph:
    return compiled(models.by_name("vgg16_bn"), (64, 64, 3), 64, amp=True)


def test_tenants_lie_side_by_side_in_the_gradients(vgg: CompiledGraph) -> None:
    plan = vgg.memory[0]
    begin, nbytes = plan.span(LANDLORDS)
    spans = sorted((plan.tensors[ref].offset, plan.tensors[ref].end) for ref in plan.layout.tenants)
    assert spans[0][0] == begin
    assert spans[-1][1] <= begin + nbytes
    assert all(end == offset for (_, end), (offset, _) in pairwise(spans))
    plan.validate()


def test_the_features_take_less_by_what_their_tenants_take(vgg: CompiledGraph) -> None:
    layout = vgg.memory[0].layout
    moved = sum(layout.slots[ref].nbytes for ref in layout.tenants)
    features = layout.spans[Region.F_FEATURE_FP16]
    assert moved > 100 * MIB
    assert features.nbytes >= features.live_bytes
    assert all(ref.region is Region.F_FEATURE_FP16 for ref in layout.tenants)


def test_gradients_that_are_written_while_features_live_have_no_tenants() -> None:
    plan = compiled(models.by_name("vgg16_bn"), (64, 64, 3), 64, amp=False).memory[0]
    assert not plan.layout.tenants


def test_the_largest_that_fit_move_and_only_those_of_the_fullest_stage() -> None:
    sizes = {
        Ref(Region.G_DEEP_CONV, "w"): 8 * MIB,
        Ref(Region.G_DEEP_CONV_FP16, "w"): 4 * MIB,
        Ref(Region.F_FEATURE_FP16, "early"): 6 * MIB,
        Ref(Region.F_FEATURE_FP16, "large"): 9 * MIB,
        Ref(Region.F_FEATURE_FP16, "middle"): 5 * MIB,
        Ref(Region.F_FEATURE_FP16, "small"): 3 * MIB,
        Ref(Region.F_FEATURE_FP16, "tiny"): MIB // 2,
    }
    spans = {"early": (0, 0), "large": (1, 2), "middle": (1, 2), "small": (2, 3), "tiny": (2, 2)}
    lives = {Ref(Region.F_FEATURE_FP16, name): Lifetime(*span) for name, span in spans.items()}
    found = {ref.name: offset for ref, offset in accommodate(sizes, lives).items()}
    assert found == {"middle": 0, "small": 5 * MIB}


def test_a_tenant_outside_its_gradients_is_found(vgg: CompiledGraph) -> None:
    layout = vgg.memory[0].layout
    tenant = next(iter(layout.tenants))
    begin, nbytes = layout.span(LANDLORDS)
    kept = layout.offsets[tenant]
    layout.offsets[tenant] = begin + nbytes
    try:
        with pytest.raises(PlanError, match="inside the gradients it is a tenant of"):
            MemoryPlan(layout, vgg.memory[0].variants, vgg.memory[0].shape_id).validate()
    finally:
        layout.offsets[tenant] = kept
