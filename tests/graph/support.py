"""Small helpers of the graph's tests."""

from __future__ import annotations

from collections.abc import Iterator

from renaissance.core.types import GraphId
from renaissance.graph.blueprint import Layer
from renaissance.graph.compiler import CompiledGraph, compile_graph
from renaissance.graph.computation_graph import ComputeNode, SubGraph
from renaissance.graph.options import CompileOptions


def options(shape: tuple[int, int, int] = (8, 8, 3), batch: int = 4, **settings) -> CompileOptions:
    """Options for an (H, W, C) input."""
    height, width, channels = shape
    return CompileOptions(
        input_channels=channels, batch=batch, train_begin=(height, width), **settings
    )


def compiled(
    layer: Layer, shape: tuple[int, int, int] = (8, 8, 3), batch: int = 4, **settings
) -> CompiledGraph:
    """A network compiled for an (H, W, C) input."""
    return compile_graph(layer, options(shape, batch, **settings))


def lines(graph: SubGraph) -> list[str]:
    """The COMPUTE nodes of a sub-graph as short text: ``fc1: fc_forward``."""
    return [f"{n.layer}: {n.op}" for n in graph if isinstance(n, ComputeNode)]


def compute_nodes(result: CompiledGraph, order: tuple[GraphId, ...]) -> Iterator[ComputeNode]:
    """All COMPUTE nodes of an order."""
    return (n for n in result.graph.nodes(order) if isinstance(n, ComputeNode))
