"""ArchPlan: a network as a flat list of layers with known shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from renaissance.core.errors import check_int, fail
from renaissance.core.types import Shape
from renaissance.graph.arch_plan import document
from renaissance.graph.arch_plan.expand import expand_tree
from renaissance.graph.arch_plan.normalise import (
    drop_identities,
    finish_with_head,
    name_batch_norms,
    normalise_flatten,
)
from renaissance.graph.arch_plan.residuals import merge_residuals
from renaissance.graph.arch_plan.sequences import (
    merge_pairs_and_mark_first,
    merge_quadruples,
    merge_triples,
)
from renaissance.graph.arch_plan.shapes import infer_shapes
from renaissance.graph.arch_plan.table import table
from renaissance.graph.blueprint.model import BluePrint
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.descriptors.residual import ADD2_END
from renaissance.graph.descriptors.structure import round_up
from renaissance.graph.layer import ArchLayer, StatisticSpec, WeightSpec
from renaissance.graph.registry import descriptor_of

# Tensor cores read channels in groups of at least four fp16 values.
FIRST_CONV_CHANNEL_MULTIPLE = 4


@dataclass(frozen=True, slots=True)
class ArchPlan:
    """A network, flattened: what is computed, in which order, on which shapes.

    Attributes:
        layers: In order of execution; the last one is the softmax-cross-entropy head.
        input_shape: Of one sample, ``n == 1``, with its real channels.
        num_classes: Number of class scores.
        amp: Whether activations and compute weights are fp16.
        fused: Whether blocks are merged into the layers that fused kernels run.
        stored_channels: Channels of the input as it lies in memory: under AMP padded with zeros to
            a multiple of 4 where the network begins with a convolution, else the real number.
        name: The blueprint's.
    """

    layers: tuple[ArchLayer, ...]
    input_shape: Shape
    num_classes: int
    amp: bool
    fused: bool
    stored_channels: int
    name: str | None = None

    @classmethod
    def from_blueprint(
        cls,
        bp: BluePrint | Layer,
        input: Shape | Sequence[int],
        fuse: bool | None = None,
        amp: bool = False,
        num_classes: int | None = None,
    ) -> ArchPlan:
        """Flatten a blueprint for an input.

        Args:
            bp: The model.
            input: ``(H, W, C)`` of one sample, or an NHWC shape whose batch is disregarded.
            fuse: Merge blocks into fused layers; None does so exactly under AMP.
            amp: Plan for automatic mixed precision.
            num_classes: None takes the width of the network's output.

        Raises:
            ShapeError: A layer cannot take the shape it is given; the message names it.
            ValueError: Fusion is asked for without AMP, or a number is out of range.
        """
        if fuse and not amp:
            expected = "False or None without AMP: the fused convolution kernels are fp16"
            fail(ValueError, "fuse", fuse, expected)
        fuse = amp if fuse is None else fuse
        model = bp if isinstance(bp, BluePrint) else BluePrint(bp)
        shape = sample_shape(input)
        if num_classes is not None:
            num_classes = check_int("num_classes", num_classes, 1)

        flat = expand_tree(model.layer, shape)
        flat = name_batch_norms(flat)
        flat = finish_with_head(flat, shape, num_classes)
        flat = drop_identities(flat)
        flat = normalise_flatten(flat, shape)
        layers = infer_shapes(flat, shape)
        if fuse:
            layers = merge_residuals(layers)
            layers = merge_quadruples(layers)
            layers = merge_triples(layers)
        layers = merge_pairs_and_mark_first(layers, fuse=fuse)

        return cls(
            layers=tuple(layers),
            input_shape=shape,
            num_classes=layers[-1].params.num_classes,
            amp=amp,
            fused=fuse,
            stored_channels=stored_channels(layers, shape, amp),
            name=model.name,
        )

    @property
    def stored_input_shape(self) -> Shape:
        """The input of one sample as it lies in memory, padded channels included."""
        return self.input_shape._replace(c=self.stored_channels)

    def stored_weight_shape(self, layer: ArchLayer, spec: WeightSpec) -> tuple[int, ...]:
        """Shape of a weight as it lies in memory: the first convolution sees padded channels."""
        if layer.kind == "conv" and layer.is_first_layer and spec.name == "weight":
            padding = self.stored_channels - self.input_shape.c
            return (*spec.shape[:-1], spec.shape[-1] + padding)
        return spec.shape

    def primitives(self) -> tuple[ArchLayer, ...]:
        """All primitive layers in order of execution; the same whether fused or not."""
        return tuple(part for layer in self.layers for part in layer.primitives())

    def weights(self) -> tuple[tuple[str, WeightSpec, ArchLayer], ...]:
        """Every trainable tensor in order: full name, description, the primitive it belongs to."""
        return tuple(
            (f"{layer.name}.{spec.name}", spec, layer)
            for layer in self.primitives()
            for spec in descriptor_of(layer.kind).weights(layer)
        )

    def statistics(self) -> tuple[tuple[str, StatisticSpec, ArchLayer], ...]:
        """Every running statistic in order: full name, description, the primitive it belongs to."""
        return tuple(
            (f"{layer.name}.{spec.name}", spec, layer)
            for layer in self.primitives()
            for spec in descriptor_of(layer.kind).statistics(layer)
        )

    @property
    def parameter_count(self) -> int:
        """Number of trainable values."""
        return sum(prod(spec.shape) for _, spec, _ in self.weights())

    @property
    def flops(self) -> int:
        """Operations of one sample's forward pass; a multiply-add is two."""
        return sum(descriptor_of(layer.kind).flops(layer) for layer in self.layers)

    def residual_gammas(self) -> tuple[str, ...]:
        """Scales of the batch norms that end a residual branch; ``zero_gamma`` starts them at 0."""
        layers = self.primitives()
        return tuple(
            f"{layer.name}.weight"
            for layer, after in pairwise(layers)
            if layer.kind in ("bn1d", "bn2d") and after.kind == ADD2_END
        )

    def to_yaml(self) -> str:
        """The plan as a YAML document."""
        return document.to_yaml(self)

    @staticmethod
    def from_yaml(text: str) -> ArchPlan:
        """The plan of a document: ``ArchPlan.from_yaml(plan.to_yaml()) == plan``.

        Raises:
            FormatError: The text is not such a document, or contradicts itself.
        """
        return document.from_yaml(text)

    def __str__(self) -> str:
        return table(self)


def sample_shape(input: Shape | Sequence[int]) -> Shape:
    """The shape of one sample from ``(H, W, C)`` or ``(N, H, W, C)``."""
    try:
        extents = tuple(input)
    except TypeError:
        extents = ()
    if len(extents) not in (3, 4):
        fail(ValueError, "input", input, "(H, W, C) of one sample or a Shape(N, H, W, C)")
    names = ("height", "width", "channels")
    pairs = zip(names, extents[-3:], strict=True)
    return Shape(1, *(check_int(f"input {name}", extent, 1) for name, extent in pairs))


def stored_channels(layers: Sequence[ArchLayer], input_shape: Shape, amp: bool) -> int:
    """Channels of the input in memory; see :attr:`ArchPlan.stored_channels`."""
    first = next(layers[0].primitives())
    if amp and first.kind == "conv":
        return round_up(input_shape.c, FIRST_CONV_CHANNEL_MULTIPLE)
    return input_shape.c
