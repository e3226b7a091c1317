"""What holds for every network: random trees, batches, resolutions and configurations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from renaissance.core.types import GraphId, Region, Variant, WeightGroup
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import Layer
from renaissance.graph.compiler import CompiledGraph, compile_graph
from renaissance.graph.computation_graph import Node, Ref, train_step, validation_step
from renaissance.graph.memory_plan import REUSED_REGIONS, MemoryPlan, roles
from renaissance.graph.options import CompileOptions
from tests.graph.random_trees import networks

quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def compilations(draw) -> CompiledGraph:
    """A random network for a random configuration."""
    layer, (height, width, channels) = draw(networks(max_layers=4))
    batch = draw(st.integers(1, 9))
    amp = draw(st.booleans())
    can_freeze = starts_with_convolution(layer, (height, width, channels))
    first_moment = draw(st.booleans())
    options = CompileOptions(
        input_channels=channels,
        batch=batch,
        train_begin=(height, width),
        last_train_batch=draw(st.integers(1, batch)),
        val_batch=(val := draw(st.integers(1, 9))),
        last_val_batch=draw(st.integers(1, val)),
        amp=amp,
        fuse=amp and draw(st.booleans()),
        first_moment=first_moment,
        second_moment=first_moment and draw(st.booleans()),
        norms=draw(st.booleans()),
        ema=draw(st.booleans()),
        first_layer_frozen=can_freeze and draw(st.booleans()),
        lr_table_length=draw(st.integers(1, 400)),
        workspace_limit=draw(st.sampled_from((0, 1000, 4096))),
    )
    return compile_graph(layer, options)


def starts_with_convolution(layer: Layer, shape: tuple[int, int, int]) -> bool:
    """Whether the first weights are a convolution's."""
    weights = ArchPlan.from_blueprint(layer, shape).weights()
    return weights[0][1].group is WeightGroup.FIRST_CONV


@quick
@given(compilations())
def test_every_plan_is_valid(result):
    for plan in set(result.memory):
        plan.validate()
        for tensor in plan.tensors.values():
            span = plan.region(tensor.region)
            assert tensor.offset % 256 == 0
            assert span.offset <= tensor.offset and tensor.offset + tensor.nbytes <= span.end


@quick
@given(compilations())
def test_offsets_and_slots_are_equal_in_all_variants(result):
    places: dict[Ref, tuple[int, int]] = {}
    for plan in result.memory:
        for ref, tensor in plan.tensors.items():
            assert places.setdefault(ref, (tensor.offset, tensor.slot_bytes)) == (
                tensor.offset,
                tensor.slot_bytes,
            )
            assert tensor.nbytes <= tensor.slot_bytes


@quick
@given(compilations())
def test_twins_begin_at_the_same_element_of_their_regions(result):
    plan = result.memory[0]
    for name, spec, layer in result.plan.weights():
        begins = set()
        for role in roles(result.options, spec.group):
            tensor = plan.tensor(Ref(spec.group.region(role), name))
            if role != "N":
                begin = tensor.offset - plan.region(tensor.region).offset
                begins.add((begin // tensor.dtype.itemsize, tensor.shape))
        assert len(begins) == 1
        assert begins.pop()[1] == result.plan.stored_weight_shape(layer, spec)


@quick
@given(compilations())
def test_no_bytes_are_taken_from_a_tensor_that_is_still_read(result):
    frozen = result.options.first_layer_frozen
    for slot in ("A", "B"):
        order = train_step(slot, first_layer_frozen=frozen)
        check_ownership(result.memory[Variant.TRAIN_BASE], stages(result, order))
        order = validation_step(slot)
        check_ownership(result.memory[Variant.VAL_BASE], stages(result, order))


@quick
@given(compilations())
def test_every_operand_is_planned_in_every_variant_that_runs_it(result):
    frozen = result.options.first_layer_frozen
    for variant in Variant:
        order = train_step("A", first_layer_frozen=frozen)
        order = order if variant.is_training else validation_step("B")
        for node in result.graph.nodes(order):
            for ref in (*node.reads, *node.writes):
                result.memory[variant].tensor(ref)


@quick
@given(networks(max_layers=4), st.integers(1, 8))
def test_fused_and_unfused_plans_hold_the_same_weights(network, batch):
    layer, (height, width, channels) = network
    shapes = []
    for fuse in (False, True):
        options = CompileOptions(
            input_channels=channels, batch=batch, train_begin=(height, width), amp=True, fuse=fuse
        )
        plan = compile_graph(layer, options).memory[0]
        persistent = (t for t in plan.tensors.values() if t.region.name[0] in "BWAG")
        shapes.append({(t.region, t.name): (t.shape, t.offset) for t in persistent})
    assert shapes[0] == shapes[1]


# -- who owns which byte --------------------------------------------------------------------------


def stages(result: CompiledGraph, order: Iterable[GraphId]) -> list[tuple[Node, ...]]:
    """All stages of an order, one after the other."""
    return [stage for graph_id in order for stage in result.graph[graph_id].stages]


class Ownership:
    """The tensors whose bytes are as they were last written, by address."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.owners: list[tuple[Ref, int]] = []

    def write(self, ref: Ref, begin: int, end: int) -> None:
        first = bisect_right(self.begins, begin)
        while first > 0 and self.owners[first - 1][1] > begin:
            first -= 1
        last = first
        while last < len(self.begins) and self.begins[last] < end:
            last += 1
        self.begins[first:last] = [begin]
        self.owners[first:last] = [(ref, end)]

    def owns(self, ref: Ref, begin: int) -> bool:
        index = bisect_right(self.begins, begin) - 1
        return index >= 0 and self.begins[index] == begin and self.owners[index][0] == ref


def check_ownership(plan: MemoryPlan, run: Iterable[tuple[Node, ...]]) -> None:
    """Play a run: whoever reads finds its own bytes, and a stage never writes what it reads."""
    regions: dict[Region, Ownership] = {region: Ownership() for region in REUSED_REGIONS}
    for stage in run:
        reads = [ref for node in stage for ref in node.reads if ref.region in regions]
        writes = [ref for node in stage for ref in node.writes if ref.region in regions]
        for ref in reads:
            if ref not in writes:
                assert regions[ref.region].owns(ref, plan.tensor(ref).offset), ref
        used = [plan.tensor(ref) for ref in {*reads, *writes}]
        for ref in writes:
            own = plan.tensor(ref)
            for other in used:
                apart = other.end <= own.offset or own.end <= other.offset
                same_region = other.region is own.region
                assert apart or other == own or not same_region, (ref, other)
            regions[ref.region].write(ref, own.offset, own.end)
