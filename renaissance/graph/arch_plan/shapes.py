"""Step 6: every layer gets its input and output shape."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.core.types import Shape
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine
from renaissance.graph.layer import ArchLayer


def infer_shapes(layers: Sequence[FlatLayer], input_shape: Shape) -> list[ArchLayer]:
    """Step 6: follow the shape of one sample through the list.

    Raises:
        ShapeError: A layer cannot take the shape it is given, or the paths of an add differ; the
            message names the layer.
        PlanError: The residual markers do not pair up.
    """
    machine = ShapeMachine(input_shape)
    shaped: list[ArchLayer] = []
    for layer in layers:
        before = machine.shape
        after = machine.step(layer)
        shaped.append(
            ArchLayer(
                kind=layer.kind,
                params=layer.params,
                name=layer.name,
                in_shape=before,
                out_shape=after,
                source_id=layer.source_id,
            )
        )
    machine.finish()
    return shaped
