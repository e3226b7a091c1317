"""Steps 2 to 5: one spelling for everything that can be written in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Shape
from renaissance.graph.arch_plan.expand import NORMS, numbered
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine, with_input_shapes
from renaissance.graph.descriptors.head import HEAD
from renaissance.graph.descriptors.residual import ADD2_END, ADD2_SHORTCUT_END, ADD2_START
from renaissance.graph.params import Flatten, Head

# What these leave is a map, whatever they were given. Other layers hand on what they get.
_LEAVES_MAP = frozenset({"conv", "conv_dw", "group_conv", "maxpool", "avgpool", "gap"})


def name_batch_norms(layers: Sequence[FlatLayer]) -> list[FlatLayer]:
    """Step 2: number the batch norms, and pick ``bn1d`` after flatten or fc, else ``bn2d``."""
    named: list[FlatLayer] = []
    numbers = count(1)
    on_vector, at_start = False, list[bool]()
    for layer in layers:
        if layer.kind in NORMS:
            kind = "bn1d" if on_vector else "bn2d"
            layer = replace(layer, kind=kind, name=numbered("bn", next(numbers)))
        elif layer.kind == ADD2_START:
            at_start.append(on_vector)
        elif layer.kind == ADD2_SHORTCUT_END:
            on_vector = at_start[-1]
        elif layer.kind == ADD2_END:
            at_start.pop()
        elif layer.kind == "fc" or layer.params == Flatten():
            on_vector = True
        elif layer.kind in _LEAVES_MAP:
            on_vector = False
        named.append(layer)
    return named


def finish_with_head(
    layers: Sequence[FlatLayer], input_shape: Shape, num_classes: int | None = None
) -> list[FlatLayer]:
    """Step 3: end with one softmax-cross-entropy head that knows the number of classes.

    Args:
        layers: The list, with or without a head at its end.
        input_shape: Of one sample.
        num_classes: None takes it from a head that is there, else from the network's output.

    Raises:
        PlanError: A head stands before the end.
        ValueError: ``num_classes`` differs from the one of the blueprint's own head.
    """
    body = list(layers)
    own = body.pop() if body and body[-1].kind == HEAD else None
    for layer in body:
        if layer.kind == HEAD:
            raise PlanError(f"{layer.name} is followed by other layers, expected it at the end")
    if own is not None:
        if num_classes is not None and own.params.num_classes != num_classes:
            expected = f"{own.params.num_classes}, as the blueprint's own head says"
            fail(ValueError, "num_classes", num_classes, expected)
        return [*body, replace(own, name=numbered(HEAD, 1))]
    if num_classes is None:
        num_classes = _output_shape(body, input_shape).c
    source_id = body[-1].source_id if body else 0
    return [*body, FlatLayer(HEAD, Head(num_classes), numbered(HEAD, 1), source_id)]


def _output_shape(layers: Sequence[FlatLayer], input_shape: Shape) -> Shape:
    machine = ShapeMachine(input_shape)
    for layer in layers:
        machine.step(layer)
    return machine.finish()


def drop_identities(layers: Sequence[FlatLayer]) -> list[FlatLayer]:
    """Step 4: an identity leaves nothing behind; as a shortcut, two adjacent markers."""
    return [layer for layer in layers if layer.kind != "identity"]


def normalise_flatten(layers: Sequence[FlatLayer], input_shape: Shape) -> list[FlatLayer]:
    """Step 5: a flatten before every fc that is given a map, and none where it changes nothing."""
    numbers = count(1)

    def flatten(params: Flatten, source_id: int) -> FlatLayer:
        return FlatLayer("flatten", params, numbered("flatten", next(numbers)), source_id)

    normal: list[FlatLayer] = []
    for layer, shape in with_input_shapes(layers, input_shape):
        if layer.kind == "fc" and shape.is_spatial:
            normal.append(flatten(Flatten(), layer.source_id))
        if layer.kind != "flatten":
            normal.append(layer)
        elif _changes(layer.params, shape):
            normal.append(flatten(layer.params, layer.source_id))
    return normal


def _changes(params: Flatten, shape: Shape) -> bool:
    return any(extent != 1 for extent in shape[params.start_dim : 3])
