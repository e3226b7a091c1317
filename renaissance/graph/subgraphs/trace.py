"""Trace: collects the nodes and tensors of a network while its layers are walked.

Layers emit their forward nodes and leave a backward rule on a tape. Playing the tape from its end
emits the backward nodes. A value read by several layers gets the sum of their gradients; a rule
that hands its own gradient on (an add, a flatten) costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from renaissance.core.types import DType, Region, StreamKind
from renaissance.graph.computation_graph import ComputeNode, Operands, Ref
from renaissance.graph.layer import ArchLayer, WeightSpec
from renaissance.graph.memory_plan.requirement import (
    Requirement,
    Scope,
    ShapeRule,
    VariantShapes,
    output_of,
)
from renaissance.graph.registry import descriptor_of
from renaissance.graph.subgraphs.value import Value

Operand = Value | Ref | None
Roles = dict[str, Operand]

REDUCTION_ROWS = 512
"""Partial sums of a fixed-order reduction: at most this many blocks write one row each."""


SMALL_SHARE = 4
"""A gradient of a convolution's input gets one part in so many of the scratch bytes: it runs beside
that of the weights, which sums over pixels and can use much, and its engines need next to none."""


class Trace:
    """Nodes and tensors of one pass over the network.

    Attributes:
        amp: Whether features and compute weights are fp16.
        fuse: Whether neighbouring operations become one.
        scope: Training or inference.
        tensors: Every tensor named so far, in order of first use.
        first_forward: Nodes up to the first layer with weights.
        deep: All nodes after it, backward included.
        first_backward: Weight gradients of the first layer.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        amp: bool,
        fuse: bool,
        first_layers: frozenset[str] = frozenset(),
        frozen: frozenset[str] = frozenset(),
        logits: str = "",
        indices: Mapping[str, int] | None = None,
        workspace_limit: int = 0,
    ):
        """
        Args:
            scope: Training or inference.
            amp: fp16 features.
            fuse: Whether neighbours become one operation.
            first_layers: Layers up to and including the first one with weights.
            frozen: Layers whose weights get no gradient.
            logits: Layer whose output is the head's input, kept in fp32.
            indices: Number of every primitive layer: what its random numbers are keyed with.
            workspace_limit: Scratch bytes of a convolution.
        """
        self.scope, self.amp, self.fuse = scope, amp, fuse
        self.tensors: dict[Ref, Requirement] = {}
        self.first_forward: list[ComputeNode] = []
        self.deep: list[ComputeNode] = []
        self.first_backward: list[ComputeNode] = []
        self._first_layers, self._frozen, self._logits = first_layers, frozen, logits
        self._indices = indices or {}
        self._workspace_limit = workspace_limit
        self._tape: list[Callable[[], None]] = []
        self._copies: dict[Ref, Ref] = {}
        self._is_backward = False

    # -- tensors ----------------------------------------------------------------------------------

    @property
    def is_training(self) -> bool:
        """Whether gradients are wanted."""
        return self.scope is Scope.TRAIN

    def tensor(
        self, region: Region, name: str, dtype: DType, shape: ShapeRule, scope: Scope | None = None
    ) -> Ref:
        """A tensor of that name, declared if it is new."""
        ref = Ref(region, name)
        if ref not in self.tensors:
            self.tensors[ref] = Requirement(ref, dtype, shape, scope or self.scope)
        return ref

    def feature(self, layer: ArchLayer, local: str = "y", shape: ShapeRule | None = None) -> Ref:
        """A feature of a layer; the logits are fp32, all others of the compute type."""
        name = f"{layer.name}.{local}" + ("" if self.is_training else "_inference")
        half = self.amp and not (layer.name == self._logits and local == "y")
        region = Region.F_FEATURE_FP16 if half else Region.F_FEATURE_FP32
        dtype = DType.FP16 if half else DType.FP32
        return self.tensor(region, name, dtype, shape or output_of(layer.name))

    def value(self, layer: ArchLayer, ref: Ref, *sources: Value) -> Value:
        """The output of a layer; it needs a gradient if a source does or the layer is trained."""
        needs = any(source.needs_gradient for source in sources) or self.trains(layer)
        return Value(ref, layer.name, self.tensors[ref].shape, needs)

    def temporary(self, layer: ArchLayer, local: str, shape: ShapeRule) -> Ref:
        """An fp32 temporary of a layer."""
        return self.tensor(Region.T_TEMP_FP32, f"{layer.name}.{local}", DType.FP32, shape)

    def partial(self, layer: ArchLayer, columns: int, direction: str) -> Ref:
        """Scratch of a reduction to ``columns`` sums."""
        return self.temporary(layer, f"partial_{direction}", (REDUCTION_ROWS, columns))

    def workspace(self, layer: ArchLayer, direction: str) -> Ref | None:
        """Scratch bytes of a convolution; None where the options allow none."""
        if self._workspace_limit == 0:
            return None
        suffix = direction if self.is_training else "inference"
        rule = (self._workspace_limit // (SMALL_SHARE if direction == "backward_data" else 1),)
        return self.tensor(
            Region.T_TEMP_INT8, f"{layer.name}.workspace_{suffix}", DType.UINT8, rule
        )

    def mask(self, layer: ArchLayer, local: str, dtype: DType = DType.UINT8) -> Ref:
        """A mask of a layer, one entry per output element."""
        return self.tensor(Region.S_MASK, f"{layer.name}.{local}", dtype, output_of(layer.name))

    def bits(self, layer: ArchLayer, local: str) -> Ref:
        """A mask of a layer, a byte for eight neighbouring channels of its output."""

        def rule(shapes: VariantShapes) -> tuple[int, ...]:
            *pixel, channels = shapes.outputs[layer.name]
            return (*pixel, channels // 8)

        return self.tensor(Region.S_MASK, f"{layer.name}.{local}", DType.UINT8, rule)

    # -- weights: refs only, the persistent part of the plan declares them ------------------------

    def spec(self, layer: ArchLayer, local: str) -> WeightSpec | None:
        """A layer's weight by local name, if it has one."""
        return next((s for s in descriptor_of(layer.kind).weights(layer) if s.name == local), None)

    def weight(self, layer: ArchLayer, local: str = "weight") -> Ref | None:
        """The tensor a layer computes with: the fp16 copy of a matrix operand under AMP."""
        spec = self.spec(layer, local)
        if spec is None:
            return None
        role = "A" if self.amp and spec.group.has_compute_copy else "W"
        return Ref(spec.group.region(role), f"{layer.name}.{local}")

    def weight_gradient(self, layer: ArchLayer, local: str = "weight") -> Ref | None:
        """Where the gradient of a weight is written first: fp16 for matrix operands under AMP."""
        spec = self.spec(layer, local)
        if spec is None:
            return None
        role = "G16" if self.amp and spec.group.has_compute_copy else "G"
        return Ref(spec.group.region(role), f"{layer.name}.{local}")

    def index(self, layer: ArchLayer) -> int:
        """Index of a layer among the plan's primitives."""
        return self._indices.get(layer.name, 0)

    def trains(self, layer: ArchLayer) -> bool:
        """Whether the layer has weights that get a gradient."""
        if not self.is_training or layer.name in self._frozen:
            return False
        return bool(descriptor_of(layer.kind).weights(layer))

    def statistic(self, layer: ArchLayer, local: str, *, new: bool = False) -> Ref:
        """A running statistic, or the one this step produces."""
        region = Region[f"B_{'NEXT' if new else 'PREV'}_{local.upper()}"]
        return Ref(region, f"{layer.name}.{local}")

    # -- nodes ------------------------------------------------------------------------------------

    def emit(
        self,
        op: str,
        layer: ArchLayer,
        inputs: Mapping[str, Operand],
        outputs: Mapping[str, Operand],
        *,
        stream: StreamKind = StreamKind.COMP_1,
        **params: Any,
    ) -> None:
        """Append a node; operands that are None are left out, and so are parameters."""
        is_first = layer.name in self._first_layers
        refs = {role: _ref(operand) for role, operand in inputs.items()}
        if self.is_training and not is_first:
            refs = {role: self._outside_input(ref) for role, ref in refs.items()}
        kept = {name: value for name, value in params.items() if value is not None}
        node = ComputeNode(
            op,
            Operands(refs),
            Operands({role: _ref(operand) for role, operand in outputs.items()}),
            kept,
            stream,
            layer.name,
        )
        self._section(is_first).append(node)

    def _section(self, is_first: bool) -> list[ComputeNode]:
        if not is_first:
            return self.deep
        return self.first_backward if self._is_backward else self.first_forward

    def _outside_input(self, ref: Ref | None) -> Ref | None:
        """Deep nodes serve both input slots, so they read a copy the first layer's graph made."""
        if ref is None or ref.region not in (Region.I_A_DATA, Region.I_A_LABEL):
            return ref
        if ref not in self._copies:
            source = self.tensors[ref]
            is_label = ref.region is Region.I_A_LABEL
            region = Region.T_TEMP_INT32 if is_label else self._feature_region
            copy = self.tensor(region, f"input.{ref.name}", source.dtype, source.shape)
            self._copies[ref] = copy
            node = ComputeNode("copy", Operands({"x": ref}), Operands({"y": copy}), layer="input")
            self.first_forward.append(node)
        return self._copies[ref]

    @property
    def _feature_region(self) -> Region:
        return Region.F_FEATURE_FP16 if self.amp else Region.F_FEATURE_FP32

    # -- gradients --------------------------------------------------------------------------------

    def on_backward(self, backward: Callable[[], None], *inputs: Value) -> None:
        """Leave a layer's backward rule on the tape; ``inputs`` get a gradient each from it."""
        for x in inputs:
            x.consumers += 1
        self._tape.append(backward)

    def play_backward(self) -> None:
        """Run the tape from its end."""
        self._is_backward = True
        while self._tape:
            self._tape.pop()()

    def new_gradient(self, x: Value) -> Ref | None:
        """A tensor for one reader's gradient of ``x``; None if ``x`` needs none."""
        if not x.needs_gradient:
            return None
        suffix = "" if x.consumers == 1 else f"_{x.gradients + 1}"
        return self.gradient_tensor(f"{x.name}.dy{suffix}", x.shape)

    def gradient_tensor(self, name: str, shape: ShapeRule) -> Ref:
        """A tensor in a gradient slot."""
        region = Region.F_GRAD_SLOT_FP16 if self.amp else Region.F_GRAD_SLOT_FP32
        return self.tensor(region, name, DType.FP16 if self.amp else DType.FP32, shape)

    def contribute(self, layer: ArchLayer, x: Value, gradient: Ref | None) -> None:
        """Add one reader's gradient to a value's; the second one makes a sum, or the addend."""
        if gradient is None or not x.needs_gradient:
            return
        x.gradients += 1
        last = x.gradients == x.consumers
        if x.gradient is not None and last and x.takes_addend:
            x.addend = gradient
            return
        if x.gradient is not None:
            suffix = "" if last else f"_sum{x.gradients}"
            total = self.gradient_tensor(f"{x.name}.dy{suffix}", x.shape)
            self.emit("gradient_sum", layer, {"a": x.gradient, "b": gradient}, {"dx": total})
            gradient = total
        x.gradient = gradient


def _ref(operand: Operand) -> Ref | None:
    return operand.ref if isinstance(operand, Value) else operand


def weight_stream(x: Value) -> StreamKind:
    """A weight's gradient runs beside the data gradient, where there is one."""
    return StreamKind.COMP_2 if x.needs_gradient else StreamKind.COMP_1
