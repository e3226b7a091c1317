"""Step 1: from the tree to a flat list of primitive layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from renaissance.core.errors import fail
from renaissance.core.types import Shape
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine
from renaissance.graph.blueprint.checked import check_layer
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.descriptors.residual import MARKERS
from renaissance.graph.params import Empty
from renaissance.graph.registry import layer_kind

# A blueprint that stands for more layers is a mistake (sub-trees shared and repeated many times).
MAX_LAYERS = 1_000_000

# An expansion rule that keeps naming composites never ends.
MAX_EXPANSIONS = 100

NORMS = ("bn", "bn1d", "bn2d")


def numbered(kind: str, number: int) -> str:
    """Name of a layer: ``conv12``; ``relu6_12``, so that it is not taken for the 612th relu."""
    return f"{kind}_{number}" if kind[-1].isdigit() else f"{kind}{number}"


def expand_tree(root: Layer, input_shape: Shape) -> list[FlatLayer]:
    """Step 1: flatten a tree to primitives, in the order of execution.

    Composites become the layers they stand for. Some need to know the shape they are given (a
    block projects its shortcut only where the shape changes), so the shape is followed along the
    way. ``add2`` becomes three markers of one number. Every layer but batch norms is named.

    Args:
        root: The tree.
        input_shape: Of one sample, ``n == 1``.

    Raises:
        ShapeError: A layer cannot take the shape it is given.
        ValueError: The tree stands for too many layers, or an expansion rule never ends.
    """
    if root.leaves > MAX_LAYERS:
        fail(ValueError, "the number of layers", root.leaves, f"at most {MAX_LAYERS}")
    return _Expansion(root, input_shape).run()


@dataclass(frozen=True, slots=True)
class _Visit:
    """A layer still to be expanded.

    ``source_id`` is its index in a pre-order walk of the blueprint; what a composite stands for
    keeps the composite's own, and counts in ``depth`` how many composites it is inside of.
    """

    layer: Layer
    source_id: int
    depth: int = 0

    def children(self) -> list[_Visit]:
        visits: list[_Visit] = []
        index = self.source_id + 1
        for child in self.layer.children:
            visits.append(_Visit(child, self.source_id if self.depth else index, self.depth))
            index += child.size
        return visits


class _Expansion:
    """One walk over a tree, with a stack of its own: trees may be deeper than Python recurses."""

    def __init__(self, root: Layer, input_shape: Shape) -> None:
        self.machine = ShapeMachine(input_shape)
        self.numbers: Counter[str] = Counter()
        self.flat: list[FlatLayer] = []
        self.pending: list[_Visit | FlatLayer] = [_Visit(root, 0)]

    def run(self) -> list[FlatLayer]:
        while self.pending:
            item = self.pending.pop()
            if isinstance(item, FlatLayer):
                self.emit(item)
                continue
            match item.layer.kind:
                case "seq":
                    self.pending += reversed(item.children())
                case "repeat":
                    self.pending += reversed(self.copies(item))
                case "add2":
                    self.pending += reversed(self.paths(item))
                case _:
                    self.leaf(item)
        self.machine.finish()
        return self.flat

    def emit(self, layer: FlatLayer) -> None:
        self.machine.step(layer)
        self.flat.append(layer)

    def name(self, kind: str) -> str:
        self.numbers[kind] += 1
        return numbered(kind, self.numbers[kind])

    def leaf(self, visit: _Visit) -> None:
        """A primitive joins the list; a composite makes way for what it stands for."""
        kind, params = visit.layer.kind, visit.layer.params
        expand = layer_kind(kind).expand
        if expand is None:
            name = "" if kind in NORMS else self.name(kind)
            self.emit(FlatLayer(kind, params, name, visit.source_id))
            return
        if visit.depth == MAX_EXPANSIONS:
            fail(ValueError, "the expansion of layer kind", kind, "primitives in the end")
        smaller = expand(params, self.machine.shape)
        check_layer(f"the expansion of layer kind {kind!r}", smaller)
        self.pending.append(_Visit(smaller, visit.source_id, visit.depth + 1))

    def paths(self, visit: _Visit) -> list[_Visit | FlatLayer]:
        """The shortcut and the main path of an add between its three markers."""
        self.numbers["add2"] += 1
        start, shortcut_end, end = (
            FlatLayer(kind, Empty(), numbered(kind, self.numbers["add2"]), visit.source_id)
            for kind in MARKERS
        )
        shortcut, main = visit.children()
        return [start, shortcut, shortcut_end, main, end]

    def copies(self, visit: _Visit) -> list[_Visit]:
        """The copies of a repeated body; the later ones may differ from the first."""
        (first,) = visit.children()
        body, later = first.layer, first
        repeated = None if body.children else layer_kind(body.kind).repeated
        if repeated is not None:
            later = replace(first, layer=Layer(body.kind, repeated(body.params)))
        return [first] + [later] * (visit.layer.params - 1)
