"""The flat list of layers between the steps, and the shapes that flow along it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from renaissance.core.errors import PlanError, ShapeError
from renaissance.core.types import Shape
from renaissance.graph.blueprint.expression import call
from renaissance.graph.descriptors.residual import ADD2_END, ADD2_SHORTCUT_END, ADD2_START
from renaissance.graph.registry import descriptor_of


@dataclass(frozen=True, slots=True)
class FlatLayer:
    """A layer whose shapes are not settled yet; the fields are those of ``ArchLayer``."""

    kind: str
    params: Any
    name: str = ""
    source_id: int = 0


class ShapeMachine:
    """Follows the shape of one sample along a flat list, residual markers included."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        # Every open add with its input and, once it is known, what its shortcut gives. Adds nest in
        # either path.
        self._open: list[tuple[Shape, Shape | None]] = []

    def step(self, layer: FlatLayer) -> Shape:
        """Pass one layer and return its output shape, the input of the next one.

        Raises:
            ShapeError: The layer cannot take the shape, or the two paths of an add differ.
            PlanError: A marker has no partner.
        """
        start, shortcut = self._open[-1] if self._open else (None, None)
        if layer.kind == ADD2_START:
            self._open.append((self.shape, None))
        elif layer.kind == ADD2_SHORTCUT_END:
            if start is None or shortcut is not None:
                _stands_alone(layer, ADD2_START)
            self._open[-1] = (start, self.shape)
            self.shape = start
        elif layer.kind == ADD2_END:
            if shortcut is None:
                _stands_alone(layer, ADD2_SHORTCUT_END)
            self._open.pop()
            self._require_equal(layer, shortcut)
        else:
            self.shape = output_shape(layer, self.shape)
        return self.shape

    def _require_equal(self, marker: FlatLayer, shortcut: Shape) -> None:
        if shortcut != self.shape:
            raise ShapeError(
                f"{marker.name or marker.kind}: the shortcut gives {shortcut}, the main path "
                f"{self.shape}, expected the same shape: project the shortcut, conv(...) and bn()"
            )

    def finish(self) -> Shape:
        """The output shape, once every add is closed."""
        if self._open:
            raise PlanError(f"{len(self._open)} add2_start left open, expected add2_end for each")
        return self.shape


def _stands_alone(marker: FlatLayer, partner: str) -> NoReturn:
    raise PlanError(f"{marker.name or marker.kind} stands alone, expected {partner} before")


def output_shape(layer: FlatLayer, shape: Shape) -> Shape:
    """Output shape of one layer; an error names the layer, its parameters and its input."""
    try:
        return Shape(*descriptor_of(layer.kind).infer_shape(layer.params, shape))
    except ShapeError as error:
        where = f"{layer.name}: " if layer.name else ""
        raise ShapeError(f"{where}{call(layer.kind, layer.params)} on {shape}: {error}") from None


def with_input_shapes(
    layers: Iterable[FlatLayer], input_shape: Shape
) -> Iterator[tuple[FlatLayer, Shape]]:
    """Each layer of a list with the shape it is given."""
    machine = ShapeMachine(input_shape)
    for layer in layers:
        yield layer, machine.shape
        machine.step(layer)
    machine.finish()
