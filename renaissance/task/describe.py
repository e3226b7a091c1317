"""What ``compile`` prints: the plans and graphs a person asked to see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from renaissance.core.types import GraphId, Variant
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import validation_step
from renaissance.graph.computation_graph.order import INFERENCE_BEGIN
from renaissance.graph.report.text import columns, memory_map, train_step_table, variants
from renaissance.task.options import CompileInfo


def describe(graph: CompiledGraph, info: CompileInfo) -> Iterator[str]:
    """The texts that ``info`` asks for, one after the other."""
    if CompileInfo.ARCH_PLAN in info:
        yield str(graph.plan)
    if CompileInfo.MEMORY_PLAN in info:
        plan = graph.memory[Variant.TRAIN_BASE]
        yield "\n\n".join(("memory plan", variants(graph), memory_map(plan)))
        yield str(plan.memory_report())
    if CompileInfo.TRAIN_GRAPH in info:
        yield "\n".join(("train step", train_step_table(graph)))
        yield operations_table(graph, (i for i in graph.train_order if len(graph.graph[i])))
    if CompileInfo.INFER_GRAPH in info:
        steps = [
            validation_step(ema=ema) for ema in ((False, True) if graph.options.ema else (False,))
        ]
        order = dict.fromkeys((*INFERENCE_BEGIN, *(i for step in steps for i in step)))
        yield "inference\n" + operations_table(graph, (i for i in order if len(graph.graph[i])))


def operations_table(graph: CompiledGraph, order: Iterable[GraphId]) -> str:
    """The operations of sub-graphs in order, one line for each kind of operation."""
    rows = [("sub-graph", "operation", "nodes")]
    for graph_id in order:
        title = graph_id.name
        for operation, count in Counter(node.op for node in graph.graph[graph_id]).items():
            rows.append((title, operation, str(count)))
            title = ""
    return "\n".join(columns(rows, right=frozenset({2})))
