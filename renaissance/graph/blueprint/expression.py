"""The expression that builds a layer: what ``repr`` prints."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from renaissance.graph.blueprint.tree import Layer

# Deeper or longer trees are abbreviated. Python's own parser gives up at 200 parentheses.
MAX_DEPTH = 90
MAX_NODES = 5_000

# Kinds with a factory of their own, by its name.
FACTORIES = {
    kind: kind
    for kind in (
        *("conv", "conv_dw", "group_conv", "bn", "dropout", "maxpool", "avgpool", "gap", "fc"),
        *("relu", "relu6", "leaky_relu", "silu", "hardswish", "elu", "sigmoid"),
        *("flatten", "identity", "channel_padding"),
        *("cbr", "cbrp", "gap_fc", "block", "mbconv"),
    )
} | {"tanh": "tanh_act"}


def expression(root: Layer) -> str:
    """Python source that builds ``root``, on one line; ``...`` where it would be too long."""
    pieces: list[str] = []
    pending: list[str | tuple[Layer, int]] = [(root, 0)]
    nodes = 0
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        node, depth = item
        nodes += 1
        if not node.children:
            pieces.append(call(node.kind, node.params))
        elif depth >= MAX_DEPTH or nodes > MAX_NODES:
            pieces.append("...")
        else:
            pieces.append(f"{node.kind}(")
            pending.append(f", {node.params})" if node.kind == "repeat" else ")")
            for position, child in reversed(list(enumerate(node.children))):
                pending.append((child, depth + 1))
                if position:
                    pending.append(", ")
    return "".join(pieces)


def call(kind: str, params: Any) -> str:
    """The factory call of one leaf layer: ``conv(64, 3, 1, 1)``."""
    if kind not in FACTORIES:
        return f"layer({kind!r}, {params!r})"
    return f"{FACTORIES[kind]}({', '.join(map(repr, arguments(params)))})"


def arguments(params: Any) -> list[Any]:
    """Values of a record as positional arguments, trailing defaults left away."""
    values = [(getattr(params, f.name), f.default) for f in fields(params)]
    while values and values[-1][1] is not MISSING and values[-1][0] == values[-1][1]:
        values.pop()
    return [value for value, _ in values if value is not None]
