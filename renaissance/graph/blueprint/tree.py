"""Layer: a node of the model tree as a value.

A tree may be of any depth and may share sub-trees, so nothing here recurses, and nothing visits
a shared sub-tree twice.
"""

from __future__ import annotations

from typing import Any, NoReturn

from renaissance.graph.blueprint.expression import expression

# Counts saturate here: a tree that shares sub-trees can stand for more layers than memory holds.
MANY = 2**62


class Layer:
    """One layer, or a composition of layers, of a blueprint.

    Layers are values: immutable, hashable, equal when they are built alike. ``repr`` prints the
    expression that builds them. Use the factories of :mod:`renaissance.graph.blueprint` to make
    one.

    Attributes:
        kind: What it is: ``"conv"``, ``"seq"``, ``"block"``.
        params: Its frozen parameter record; the number of copies for ``"repeat"``.
        children: The layers it is composed of; empty for a leaf.
        size: Number of nodes of its tree, itself included.
        leaves: Number of leaf layers it stands for, every copy of a ``repeat`` counted.
    """

    __slots__ = ("kind", "params", "children", "size", "leaves", "_hash")

    kind: str
    params: Any
    children: tuple[Layer, ...]
    size: int
    leaves: int
    _hash: int

    def __init__(self, kind: str, params: Any, children: tuple[Layer, ...] = ()) -> None:
        copies = params if kind == "repeat" else 1
        leaves = copies * sum(child.leaves for child in children) if children else 1
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "params", params)
        put(self, "children", children)
        put(self, "size", min(MANY, 1 + sum(child.size for child in children)))
        put(self, "leaves", min(MANY, leaves))
        put(self, "_hash", hash((kind, params, *(child._hash for child in children))))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a Layer is immutable: cannot set {name!r}; build a new Layer")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Layer is immutable: cannot delete {name!r}")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return same_tree(self, other) if isinstance(other, Layer) else NotImplemented

    def __repr__(self) -> str:
        return expression(self)

    def __copy__(self) -> Layer:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unflatten, (_flatten(self),)


def same_tree(left: Layer, right: Layer) -> bool:
    """Whether two trees are built alike."""
    pending, seen = [(left, right)], set()
    while pending:
        a, b = pending.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if hash(a) != hash(b) or a.kind != b.kind or a.params != b.params:
            return False
        if len(a.children) != len(b.children):
            return False
        pending.extend(zip(a.children, b.children, strict=True))
    return True


# A tree written as a list of nodes in which children, given by their index, come before parents.
FlatTree = list[tuple[str, Any, tuple[int, ...]]]


def _flatten(root: Layer) -> FlatTree:
    nodes: FlatTree = []
    index: dict[int, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        missing = [child for child in node.children if id(child) not in index]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if id(node) not in index:
            index[id(node)] = len(nodes)
            nodes.append((node.kind, node.params, tuple(index[id(c)] for c in node.children)))
    return nodes


def _unflatten(nodes: FlatTree) -> Layer:
    layers: list[Layer] = []
    for kind, params, children in nodes:
        layers.append(Layer(kind, params, tuple(layers[i] for i in children)))
    return layers[-1]
