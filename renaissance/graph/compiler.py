"""Compiler: five phases from an architecture to memory plans, graphs and the atlas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType, GraphId, Region, Variant
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.atlas import GraphAtlas
from renaissance.graph.blueprint import BluePrint, Layer
from renaissance.graph.computation_graph import (
    ComputationGraph,
    Node,
    Ref,
    SubGraph,
    single_writer,
    train_step,
    validation_step,
)
from renaissance.graph.computation_graph.order import INFERENCE_BEGIN
from renaissance.graph.computation_graph.ranges import range_graphs, scratch_of
from renaissance.graph.memory_plan import (
    Layout,
    Lifetime,
    MemoryPlan,
    Requirement,
    Slot,
    VariantShapes,
    invite,
    lay_out,
    lifetimes,
    moved_slots,
    persistent_requirements,
    size_slots,
)
from renaissance.graph.options import CompileOptions, ShapeId
from renaissance.graph.subgraphs import (
    fold_norms,
    in_slot_b,
    mapped,
    on_ema,
    trace_inference,
    trace_training,
)
from renaissance.graph.subgraphs.trace import REDUCTION_ROWS
from renaissance.graph.variant_shapes import infer_variant_shapes

Graphs = dict[GraphId, SubGraph]


@dataclass(frozen=True)
class CompiledGraph:
    """Everything decided before any data is seen.

    Attributes:
        plan: The architecture.
        options: What it was compiled for.
        memory: One memory plan a variant, by number; variants of equal shape share one object.
        graph: The 33 sub-graphs, shared by all variants.
        atlas: Keys of the executables, and their place once they are compiled.
    """

    plan: ArchPlan
    options: CompileOptions
    memory: tuple[MemoryPlan, ...]
    graph: ComputationGraph
    atlas: GraphAtlas

    @property
    def train_order(self) -> tuple[GraphId, ...]:
        """The train step while slot A holds the batch."""
        return train_step(first_layer_frozen=self.options.first_layer_frozen)


class Compiler:
    """Runs the five phases. Each is a function of its own and can be called alone."""

    def __init__(self, plan: ArchPlan, options: CompileOptions):
        """
        Args:
            plan: The architecture, with the options' precision and fusion.
            options: Variants, optimizer slots, EMA and the like.

        Raises:
            PlanError: the two contradict each other.
        """
        _check_agreement(plan, options)
        self.plan, self.options = plan, options

    def compile(self) -> CompiledGraph:
        """The five phases, in order.

        Raises:
            ShapeError: a layer cannot take the shape it gets in some variant.
            PlanError: the network cannot be planned.
        """
        variants = infer_variant_shapes(self.plan, self.options)
        slots, passes = size_tensors(self.plan, self.options, variants)
        slots, passes = share_features(slots, passes)
        memory = plan_memory(self.options, slots, passes)
        graph = build_graph(self.options, slots, passes)
        atlas = share_variants(self.options, graph)
        return CompiledGraph(self.plan, self.options, memory, graph, atlas)


def compile_graph(
    blueprint: BluePrint | Layer, options: CompileOptions, num_classes: int | None = None
) -> CompiledGraph:
    """From a blueprint to everything the runtime needs; see :class:`Compiler`."""
    plan = ArchPlan.from_blueprint(
        blueprint,
        options.sample_shape,
        fuse=options.fuse,
        amp=options.amp,
        num_classes=num_classes,
    )
    return Compiler(plan, options).compile()


def _check_agreement(plan: ArchPlan, options: CompileOptions) -> None:
    pairs = (
        ("amp", options.amp, plan.amp),
        ("fuse", options.fuse, plan.fused),
        ("input shape", options.sample_shape, plan.input_shape),
    )
    for name, given, expected in pairs:
        if given != expected:
            fail(PlanError, f"{name} of the options", given, f"the architecture's, {expected!r}")


# -- phase 2 --------------------------------------------------------------------------------------


def size_tensors(
    plan: ArchPlan, options: CompileOptions, variants: Sequence[VariantShapes]
) -> tuple[dict[Ref, Slot], Graphs]:
    """Phase 2: every tensor any variant needs, with its largest size, and the passes that use them.

    Raises:
        PlanError: the network has nothing to train.
    """
    training, inference = trace_training(plan, options), trace_inference(plan, options)
    passes = {
        GraphId.FIRST_LAYER_FWD_A: training.first_forward,
        GraphId.DEEP_FWD_BWD: training.deep,
        GraphId.FIRST_LAYER_BWD_A: training.first_backward,
        GraphId.INF_MAIN_A: inference.deep,
        GraphId.UPDATE_BN_INF_PARAMS: fold_norms(plan, options),
    }
    from_nodes = {**training.tensors, **inference.tensors}
    twins = [
        replace(from_nodes[ref], ref=in_slot_b(ref))
        for ref in from_nodes
        if ref.region in (Region.I_A_DATA, Region.I_A_LABEL)
    ]
    requirements = [*persistent_requirements(plan, options), *from_nodes.values(), *twins]
    scratch = _range_scratch(options, {r.ref.region for r in requirements})
    slots = size_slots([*requirements, *scratch], variants)
    return slots, {i: SubGraph(i, tuple(nodes)) for i, nodes in passes.items()}


def _range_scratch(options: CompileOptions, present: set[Region]) -> list[Requirement]:
    """Partial sums of the operations over whole regions."""
    graphs = range_graphs(options, lambda region: region not in present)
    rule = (REDUCTION_ROWS, 2)
    return [Requirement(ref, DType.FP32, rule) for ref in scratch_of(graphs.values())]


# -- phase 3 --------------------------------------------------------------------------------------


def share_features(slots: dict[Ref, Slot], passes: Graphs) -> tuple[dict[Ref, Slot], Graphs]:
    """Phase 3 begins by moving large gradients to where features have died."""
    moved = invite(slots, _training_stages(passes))

    def renamed(ref: Ref) -> Ref:
        return moved.get(ref, ref)

    graphs = {i: SubGraph(i, tuple(mapped(graph.nodes, renamed))) for i, graph in passes.items()}
    return moved_slots(slots, moved), graphs


def plan_memory(
    options: CompileOptions, slots: dict[Ref, Slot], passes: Graphs
) -> tuple[MemoryPlan, ...]:
    """Phase 3: one layout, and a memory plan that shows it to each variant.

    Offsets are the layout's, so they are equal in all plans. Variants of equal shape get one plan.
    """
    layout = _lay_out(slots, passes)
    alike: dict[ShapeId, list[Variant]] = {}
    for variant in Variant:
        alike.setdefault(options.shape_id(variant), []).append(variant)
    plans = {shape: MemoryPlan(layout, variants, shape) for shape, variants in alike.items()}
    return tuple(plans[options.shape_id(variant)] for variant in Variant)


def _training_stages(passes: Graphs) -> list[tuple[Node, ...]]:
    order = (GraphId.FIRST_LAYER_FWD_A, GraphId.DEEP_FWD_BWD, GraphId.FIRST_LAYER_BWD_A)
    return [*chain.from_iterable(passes[i].stages for i in order)]


def _lay_out(slots: dict[Ref, Slot], passes: Graphs) -> Layout:
    """Training's tensors live before inference's: the two never run at once and share all bytes."""
    stages = _training_stages(passes)
    between = len(stages)
    stages += [(), *passes[GraphId.INF_MAIN_A].stages]
    lives = lifetimes(stages)
    for ref in slots:  # scratch of the range operations, after the backward pass
        if ref.region is Region.T_TEMP_FP32 and ref not in lives:
            lives[ref] = Lifetime(between, between)
    return lay_out(slots, lives)


# -- phase 4 --------------------------------------------------------------------------------------


def build_graph(
    options: CompileOptions, slots: dict[Ref, Slot], passes: Graphs
) -> ComputationGraph:
    """Phase 4: the 33 sub-graphs, the train step and the inference, checked.

    Raises:
        PlanError: something is read before it is written, or waits for itself.
    """
    present = {ref.region for ref in slots}
    first_forward = passes[GraphId.FIRST_LAYER_FWD_A]
    first_backward = passes[GraphId.FIRST_LAYER_BWD_A]
    inference = passes[GraphId.INF_MAIN_A]
    nodes: dict[GraphId, Iterable[Node]] = {
        **range_graphs(options, lambda region: region not in present),
        **passes,
        GraphId.FIRST_LAYER_FWD_B: mapped(first_forward, in_slot_b),
        GraphId.FIRST_LAYER_BWD_B: mapped(first_backward, in_slot_b),
        GraphId.INF_MAIN_B: mapped(inference, in_slot_b),
    }
    if options.ema:
        nodes[GraphId.INF_EMA_A] = mapped(inference, on_ema)
        nodes[GraphId.INF_EMA_B] = mapped(inference, on_ema, in_slot_b)
    graph = ComputationGraph(nodes)
    orders = _orders(options)
    graph.validate(*orders)
    for order in orders[:2]:
        single_writer(graph.nodes(order))
    _check_known(graph, slots)
    return graph


def _orders(options: CompileOptions) -> list[tuple[GraphId, ...]]:
    frozen = options.first_layer_frozen
    steps = [train_step(slot, first_layer_frozen=frozen) for slot in ("A", "B")]
    emas = (False, True) if options.ema else (False,)
    validation = [validation_step(slot, ema=ema) for slot in ("A", "B") for ema in emas]
    return [*steps, *((*INFERENCE_BEGIN, *order) for order in validation)]


def _check_known(graph: ComputationGraph, slots: dict[Ref, Slot]) -> None:
    for ref in graph.tensors():
        if ref not in slots:
            fail(PlanError, "operand", str(ref), "a tensor of the memory plan")


# -- phase 5 --------------------------------------------------------------------------------------


def share_variants(options: CompileOptions, graph: ComputationGraph) -> GraphAtlas:
    """Phase 5: variants of equal shape share their executables, and a sub-graph that works on no
    rows has one for all."""
    return GraphAtlas(graph, [options.shape_id(variant) for variant in Variant])
