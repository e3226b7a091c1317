"""BluePrint: a tree of layers with a name."""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.core.errors import fail
from renaissance.graph.blueprint.checked import check_layer
from renaissance.graph.blueprint.tree import Layer


@dataclass(frozen=True, slots=True, repr=False)
class BluePrint:
    """A model as it is written down: what it is made of, and nothing about how it is run.

    It holds no weights, no shapes, no batch size, no loss and no optimizer, so one blueprint
    serves any input that its layers can take.

    Attributes:
        layer: The tree.
        name: Shown in tables and reports.

    Raises:
        TypeError: ``layer`` is not a layer, or ``name`` is not a string.
    """

    layer: Layer
    name: str | None = None

    def __post_init__(self) -> None:
        check_layer("BluePrint layer", self.layer)
        if self.name is not None and not isinstance(self.name, str):
            fail(TypeError, "BluePrint name", self.name, "a string or None")

    def __repr__(self) -> str:
        name = "" if self.name is None else f", {self.name!r}"
        return f"BluePrint({self.layer!r}{name})"
