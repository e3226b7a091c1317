"""A whole network as nodes and tensors: training pass, inference, folded batch norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import DType, Region
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.computation_graph import ComputeNode, Node, Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.memory_plan.requirement import Scope
from renaissance.graph.options import CompileOptions
from renaissance.graph.registry import descriptor_of
from renaissance.graph.subgraphs import norm
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value
from renaissance.graph.subgraphs.walk import Walker

_INVISIBLE = ("flatten", "identity", "softmax_cross_entropy")


def trace_training(plan: ArchPlan, options: CompileOptions) -> Trace:
    """Forward, loss and backward of one batch.

    Raises:
        PlanError: no layer has weights, or the frozen first layer is not a convolution.
    """
    layers = plan.primitives()
    first = first_weighted(layers)
    frozen = _frozen(first, options)
    names = [layer.name for layer in layers]
    trace = Trace(
        Scope.TRAIN,
        amp=options.amp,
        fuse=bool(options.fuse),
        first_layers=frozenset(names[: names.index(first.name) + 1]),
        frozen=frozen,
        logits=logits_layer(layers),
        indices={name: index for index, name in enumerate(names)},
        workspace_limit=options.workspace_limit,
    )
    _walk(trace, layers)
    trace.play_backward()
    return trace


def trace_inference(plan: ArchPlan, options: CompileOptions) -> Trace:
    """The pass over one batch with the main weights, batch norms folded to affine maps."""
    layers = plan.primitives()
    trace = Trace(
        Scope.INFERENCE,
        amp=options.amp,
        fuse=bool(options.fuse),
        logits=logits_layer(layers),
        workspace_limit=options.workspace_limit,
    )
    _walk(trace, layers)
    return trace


def fold_norms(plan: ArchPlan, options: CompileOptions) -> list[ComputeNode]:
    """Scale and bias of every batch norm, from the main weights and from the EMA's."""
    trace = Trace(Scope.INFERENCE, amp=options.amp, fuse=bool(options.fuse))
    for layer in plan.primitives():
        if layer.kind in norm.NORMS:
            norm.fold(trace, layer)
    averages = [node.map_refs(on_ema) for node in trace.deep] if options.ema else []
    return [*trace.deep, *averages]


def _walk(trace: Trace, layers: Sequence[ArchLayer]) -> None:
    dtype = DType.FP16 if trace.amp else DType.FP32
    data = trace.tensor(Region.I_A_DATA, "images", dtype, lambda s: s.input, Scope.ALWAYS)
    trace.tensor(Region.I_A_LABEL, "labels", DType.INT32, lambda s: (s.rows,), Scope.ALWAYS)
    Walker(trace, Value(data, "input", lambda s: s.input, needs_gradient=False)).run(layers)


def first_weighted(layers: Sequence[ArchLayer]) -> ArchLayer:
    """The first primitive layer with weights."""
    for layer in layers:
        if descriptor_of(layer.kind).weights(layer):
            return layer
    fail(PlanError, "network", [layer.kind for layer in layers], "a layer with weights to train")


def _frozen(first: ArchLayer, options: CompileOptions) -> frozenset[str]:
    if not options.first_layer_frozen:
        return frozenset()
    groups = {spec.group.value for spec in descriptor_of(first.kind).weights(first)}
    if groups != {"FIRST_CONV"}:
        expected = "a convolution first: only its weights lie in regions of their own"
        fail(
            PlanError,
            f"first_layer_frozen with first layer {first.name} of kind",
            first.kind,
            expected,
        )
    return frozenset({first.name})


def logits_layer(layers: Sequence[ArchLayer]) -> str:
    """The layer whose output the head reads."""
    for layer in reversed(layers):
        is_nothing = layer.kind == "dropout" and layer.params.p == 0
        if layer.kind not in _INVISIBLE and not is_nothing:
            return layer.name
    return ""


# -- the same nodes on other tensors --------------------------------------------------------------

_SLOT_B = {Region.I_A_DATA: Region.I_B_DATA, Region.I_A_LABEL: Region.I_B_LABEL}
_EMA = {
    region: Region["E" + region.name[1:]]
    for region in Region
    if region.name.startswith("W_") and not region.name.startswith("W_EQ")
} | {
    region: Region[f"E{region.name[1:]}_FP16"] for region in Region if region.name.startswith("A_")
}


def in_slot_b(ref: Ref) -> Ref:
    """The tensor's twin in input slot B."""
    return Ref(_SLOT_B.get(ref.region, ref.region), ref.name)


def on_ema(ref: Ref) -> Ref:
    """The tensor's twin among the EMA weights."""
    if ref.region in (Region.W_EQ_BIAS, Region.W_EQ_SCALE):
        return Ref(ref.region, f"{ref.name}_ema")
    return Ref(_EMA.get(ref.region, ref.region), ref.name)


def mapped(nodes: Iterable[Node], *changes: Callable[[Ref], Ref]) -> list[Node]:
    """All nodes with every operand changed."""
    result = list(nodes)
    for change in changes:
        result = [node.map_refs(change) for node in result]
    return result
