"""Step 1: from the tree to a flat list of primitive layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from renaissance.core.errors import fail
from renaissance.core.types import Shape
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine
from renaissance.graph.blueprint.checked import check_layer
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.descriptors.residual import ADD2_END, ADD2_SHORTCUT_END, ADD2_START
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
    """Flatten a tree to primitives, in the order of execution.

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
    machine = ShapeMachine(input_shape)
    counter: Counter[str] = Counter()
    flat: list[FlatLayer] = []
    for kind, params, source_id, number in _walk(root, machine, counter):
        if kind not in NORMS:
            number = number or _next(counter, kind)
        name = "" if kind in NORMS else numbered(kind, number)
        layer = FlatLayer(kind, params, name, source_id)
        machine.step(layer)
        flat.append(layer)
    machine.finish()
    return flat


def _next(counter: Counter[str], kind: str) -> int:
    counter[kind] += 1
    return counter[kind]


# What is still to be visited: a layer with its index in the blueprint and its depth of expansion,
# or a marker with the number of its add.
_Visit = tuple[Layer, int, int]
_Marker = tuple[str, int, int]


def _walk(
    root: Layer, machine: ShapeMachine, counter: Counter[str]
) -> Iterator[tuple[str, Any, int, int]]:
    """Yield ``(kind, params, source_id, number or 0)`` of every primitive, in order."""
    pending: list[_Visit | _Marker] = [(root, 0, 0)]
    while pending:
        node, source_id, extra = pending.pop()
        if isinstance(node, str):
            yield node, Empty(), source_id, extra
        elif node.kind == "seq":
            pending.extend(reversed(_children(node, source_id, extra)))
        elif node.kind == "repeat":
            pending.extend(reversed(_copies(node, source_id, extra)))
        elif node.kind == "add2":
            number = _next(counter, "add2")
            shortcut, main = _children(node, source_id, extra)
            pending += [(ADD2_END, source_id, number), main]
            pending += [(ADD2_SHORTCUT_END, source_id, number), shortcut]
            yield ADD2_START, Empty(), source_id, number
        elif (expand := layer_kind(node.kind).expand) is not None:
            if extra == MAX_EXPANSIONS:
                fail(ValueError, "the expansion of layer kind", node.kind, "primitives in the end")
            smaller = check_layer(
                f"the expansion of layer kind {node.kind!r}", expand(node.params, machine.shape)
            )
            pending.append((smaller, source_id, extra + 1))
        else:
            yield node.kind, node.params, source_id, 0


def _children(node: Layer, source_id: int, depth: int) -> list[_Visit]:
    """The children with their indices in a pre-order walk of the blueprint.

    What a composite expands to keeps the composite's own index.
    """
    visits: list[_Visit] = []
    index = source_id + 1
    for child in node.children:
        visits.append((child, source_id if depth else index, depth))
        index += child.size
    return visits


def _copies(node: Layer, source_id: int, depth: int) -> list[_Visit]:
    """The copies of a repeated body; the later ones may differ from the first."""
    body = node.children[0]
    index = source_id if depth else source_id + 1
    kind = None if body.children else layer_kind(body.kind)
    later = body
    if kind is not None and kind.repeated is not None:
        later = Layer(body.kind, kind.repeated(body.params))
    return [(body, index, depth)] + [(later, index, depth)] * (node.params - 1)
