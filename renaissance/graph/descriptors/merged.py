"""Blocks that a plan merges from primitives. Their tensors and operations are their parts'."""

from __future__ import annotations

from renaissance.core.types import Shape
from renaissance.graph.descriptors.convolution import window_shape
from renaissance.graph.layer import ArchLayer, LayerDescriptor
from renaissance.graph.params import BasicBlock, Bottleneck, InvertedResidual
from renaissance.graph.registry import descriptor_of


def _block_shape(params: Bottleneck | BasicBlock | InvertedResidual, shape: Shape) -> Shape:
    return window_shape(shape, 3, params.stride, 1, params.out)


def flops_of_parts(layer: ArchLayer) -> int:
    """Operations of all primitives of a merged layer."""
    return sum(descriptor_of(part.kind).flops(part) for part in layer.parts)


DESCRIPTORS = tuple(
    LayerDescriptor(kind, params, _block_shape, flops=flops_of_parts)
    for kind, params in (
        ("bottleneck_projection", Bottleneck),
        ("bottleneck_identity", Bottleneck),
        ("basic_block_projection", BasicBlock),
        ("basic_block_identity", BasicBlock),
        ("inv_residual_no_shortcut", InvertedResidual),
        ("inv_residual_identity", InvertedResidual),
    )
)
