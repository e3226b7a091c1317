"""Which sub-graph a layer kind has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from renaissance.core.errors import fail
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs import (
    activation,
    convolution,
    dropout,
    fully_connected,
    head,
    norm,
    pooling,
    structure,
)
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value

LayerRule = Callable[[Trace, ArchLayer, Value], Value]


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """How a primitive layer becomes nodes.

    Attributes:
        train: ``(trace, layer, x) -> y``: emits the forward nodes, and leaves on the trace's tape
            the rule that emits the backward nodes.
        infer: ``(trace, layer, x) -> y``: emits the nodes of inference.
    """

    train: LayerRule
    infer: LayerRule


_ANY = LayerGraph(structure.train_any, structure.infer_any)
_GRAPHS: dict[str, LayerGraph] = {
    **{kind: LayerGraph(activation.train, activation.infer) for kind in activation.ACTIVATIONS},
    **{kind: LayerGraph(convolution.train, convolution.infer) for kind in convolution.CONVOLUTIONS},
    **{kind: LayerGraph(norm.train, norm.infer) for kind in norm.NORMS},
    **{kind: LayerGraph(pooling.train, pooling.infer) for kind in ("maxpool", "avgpool", "gap")},
    "fc": LayerGraph(fully_connected.train, fully_connected.infer),
    "dropout": LayerGraph(dropout.train, dropout.infer),
    "flatten": LayerGraph(structure.alias, structure.alias),
    "identity": LayerGraph(structure.alias, structure.alias),
    "channel_padding": LayerGraph(structure.train_padding, structure.infer_padding),
    "softmax_cross_entropy": LayerGraph(head.train, head.infer),
}


def layer_graph(kind: str) -> LayerGraph:
    """The sub-graph of a kind; one generic operation each way for a kind that registered none."""
    return _GRAPHS.get(kind, _ANY)


def register_layer_graph(kind: str, graph: LayerGraph) -> None:
    """Give a kind a sub-graph of its own.

    Raises:
        ValueError: the kind has one already.
    """
    if kind in _GRAPHS:
        fail(ValueError, "kind", kind, "a kind without a sub-graph")
    _GRAPHS[kind] = graph
