"""Sub-graphs: how each layer kind becomes forward, backward and inference nodes."""

from renaissance.graph.subgraphs.network import (
    fold_norms,
    in_slot_b,
    mapped,
    on_ema,
    trace_inference,
    trace_training,
)
from renaissance.graph.subgraphs.registry import LayerGraph, layer_graph, register_layer_graph
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value

__all__ = [
    "LayerGraph",
    "Trace",
    "Value",
    "fold_norms",
    "in_slot_b",
    "layer_graph",
    "mapped",
    "on_ema",
    "register_layer_graph",
    "trace_inference",
    "trace_training",
]
