"""Steps 8 to 10: what is left of conv, bn, relu, pool and fc merges by four, three and two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.graph.arch_plan.merging import Parts, Pattern, merge
from renaissance.graph.layer import ArchLayer
from renaissance.graph.params import ConvBnRelu, ConvBnReluPool, GapFc
from renaissance.graph.registry import descriptor_of


def merge_quadruples(layers: Sequence[ArchLayer]) -> list[ArchLayer]:
    """Step 8: convolution, batch norm, ReLU and max-pool become ``cbrp``."""
    words = ("conv", "bn2d", "relu", "maxpool")
    return merge(layers, Pattern("cbrp", words, _conv_bn_relu_pool))


def merge_triples(layers: Sequence[ArchLayer]) -> list[ArchLayer]:
    """Step 9: convolution, batch norm and ReLU become ``cbr``."""
    return merge(layers, Pattern("cbr", ("conv", "bn2d", "relu"), _conv_bn_relu))


def merge_pairs_and_mark_first(
    layers: Sequence[ArchLayer], *, fuse: bool = True
) -> list[ArchLayer]:
    """Step 10: global pool and fc become ``gap_fc``; the first layer with weights is marked.

    Args:
        layers: The list, shapes inferred.
        fuse: Without it nothing is merged, and only the mark is set.
    """
    if fuse:
        layers = merge(layers, Pattern("gap_fc", ("gap", "fc"), _gap_fc))
    marked = list(layers)
    for position, layer in enumerate(marked):
        if any(descriptor_of(part.kind).weights(part) for part in layer.primitives()):
            marked[position] = _mark_first(layer)
            break
    return marked


def _mark_first(layer: ArchLayer) -> ArchLayer:
    """Mark a layer, and inside a merged one the first part with weights."""
    parts = list(layer.parts)
    for position, part in enumerate(parts):
        if descriptor_of(part.kind).weights(part):
            parts[position] = replace(part, is_first_layer=True)
            break
    return replace(layer, is_first_layer=True, parts=tuple(parts))


def _conv_bn_relu(parts: Parts) -> ConvBnRelu:
    conv, bn = parts[0].params, parts[1].params
    return ConvBnRelu(conv.out, conv.kernel, conv.stride, conv.pad, bn.momentum, bn.eps)


def _conv_bn_relu_pool(parts: Parts) -> ConvBnReluPool:
    conv, bn, pool = parts[0].params, parts[1].params, parts[3].params
    return ConvBnReluPool(
        out=conv.out,
        conv_kernel=conv.kernel,
        conv_stride=conv.stride,
        conv_pad=conv.pad,
        pool_kernel=pool.kernel,
        pool_stride=pool.stride,
        pool_pad=pool.pad,
        momentum=bn.momentum,
        eps=bn.eps,
    )


def _gap_fc(parts: Parts) -> GapFc:
    fc = parts[1].params
    return GapFc(fc.out, fc.bias)
