"""Phase 1 of the compiler: the shapes of every layer in all six variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from renaissance.core.errors import ShapeError
from renaissance.core.types import Shape, Variant
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine
from renaissance.graph.layer import ArchLayer
from renaissance.graph.memory_plan.requirement import VariantShapes
from renaissance.graph.options import CompileOptions
from renaissance.graph.registry import descriptor_of


def infer_variant_shapes(plan: ArchPlan, options: CompileOptions) -> tuple[VariantShapes, ...]:
    """Phase 1: input and output of every primitive layer in all six variants.

    Raises:
        ShapeError: a layer cannot take a resolution, or its weights would change with it.
    """
    layers = plan.primitives()
    by_resolution: dict[tuple[int, int], list[tuple[str, Shape, Shape]]] = {}
    for variant in Variant:
        resolution = options.resolution(variant)
        if resolution not in by_resolution:
            by_resolution[resolution] = _sample_shapes(layers, plan.input_shape, resolution)
    stored = plan.stored_input_shape
    result = []
    for variant in Variant:
        rows, (height, width) = options.rows(variant), options.resolution(variant)
        shapes = by_resolution[height, width]
        result.append(
            VariantShapes(
                variant,
                Shape(rows, height, width, stored.c),
                {name: before.with_batch(rows) for name, before, _ in shapes},
                {name: after.with_batch(rows) for name, _, after in shapes},
            )
        )
    return tuple(result)


def _sample_shapes(
    layers: Sequence[ArchLayer], planned: Shape, resolution: tuple[int, int]
) -> list[tuple[str, Shape, Shape]]:
    """(name, input, output) of every layer for one sample of a resolution."""
    if resolution == (planned.h, planned.w):
        return [(layer.name, layer.in_shape, layer.out_shape) for layer in layers]
    machine = ShapeMachine(Shape(1, *resolution, planned.c))
    shapes = []
    for layer in layers:
        before = machine.shape
        after = machine.step(FlatLayer(layer.kind, layer.params, layer.name))
        _check_weights(layer, before, after)
        shapes.append((layer.name, before, after))
    machine.finish()
    return shapes


def _check_weights(layer: ArchLayer, before: Shape, after: Shape) -> None:
    """A weight has one shape whatever the resolution."""
    weights = descriptor_of(layer.kind).weights
    there = weights(replace(layer, in_shape=before, out_shape=after))
    for planned, found in zip(weights(layer), there, strict=True):
        if planned.shape != found.shape:
            raise ShapeError(
                f"{layer.name}.{planned.name} would have shape {found.shape} on input {before}, "
                f"expected {planned.shape} as on {layer.in_shape}: a weight cannot change with the "
                "resolution; end the maps with gap() instead of flatten()"
            )
