"""A compiled network as text: variants, memory map, train step, nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from renaissance.core.types import Bank, GraphId, Variant
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import BESIDE, ONLY_IF_FINITE, SubGraph
from renaissance.graph.memory_plan import MemoryPlan
from renaissance.graph.report.units import human

BAR_WIDTH, LINE_WIDTH = 32, 100


def columns(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines with aligned columns; those in ``right`` are flushed right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def report(result: CompiledGraph, *, nodes: bool = False, layout: bool = False) -> str:
    """Everything the compiler decided.

    Args:
        result: A compiled network.
        nodes: List every node of every sub-graph.
        layout: List every tensor with its offset.
    """
    plan = result.memory[Variant.TRAIN_BASE]
    parts = [
        str(result.plan),
        variants(result),
        memory_map(plan),
        str(plan.memory_report()),
        train_step_table(result),
        graph_table(result),
    ]
    if nodes:
        parts.append(str(result.graph))
    if layout:
        parts.append(plan.dump_layout())
    titles = ("ARCHITECTURE", "VARIANTS", "MEMORY MAP", "MEMORY", "TRAIN STEP", "GRAPHS")
    names = (*titles, *(["NODES"] if nodes else []), *(["LAYOUT"] if layout else []))
    return "\n\n".join(
        f"{name}\n{'=' * len(name)}\n{text}" for name, text in zip(names, parts, strict=True)
    )


def variants(result: CompiledGraph) -> str:
    """The six variants, and how many executables they need together."""
    rows = [("variant", "input", "shares its plan with")]
    for variant in Variant:
        plan = result.memory[variant]
        others = [other.name.lower() for other in plan.variants if other is not variant]
        rows.append((variant.name.lower(), str(plan.shape_id), ", ".join(others)))
    count = sum(1 for key in result.atlas.keys() if len(result.graph[key.graph_id]))
    return "\n".join([*columns(rows), "", f"{count} executables serve all variants"])


def memory_map(plan: MemoryPlan) -> str:
    """The regions that are not empty, bank by bank, with a bar for their share of the bank."""
    lines: list[str] = []
    for bank in Bank:
        total = plan.bank_bytes(bank)
        lines.append(f"{bank.value} bank, {human(total)} ({total:,} bytes)")
        rows = [
            (
                f"{span.region.value:>4}",
                span.region.name,
                f"{span.offset:,}",
                f"{span.nbytes:,}",
                human(span.nbytes),
                _bar(span.nbytes, total),
            )
            for span in plan.regions
            if span.bank is bank and span.nbytes
        ]
        lines += [*columns(rows, frozenset({2, 3, 4})), ""]
    empty = [span.region.name for span in plan.regions if not span.nbytes]
    lines += _wrapped(f"empty in this configuration ({len(empty)}):", empty)
    return "\n".join(lines)


def _bar(part: int, whole: int) -> str:
    eighths = round(part / whole * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "") or "▏"


def _wrapped(title: str, words: Iterable[str], indent: int = 3) -> list[str]:
    lines, line = [], title
    for word in words:
        if len(line) + 1 + len(word) > LINE_WIDTH:
            lines.append(line)
            line = " " * indent
        line += " " + word
    return [*lines, line]


def train_step_table(result: CompiledGraph) -> str:
    """The sub-graphs of a train step in order, with their streams and conditions."""
    rows = [("", "sub-graph", "nodes", "stages", "streams", "")]
    for number, graph_id in enumerate(result.train_order, 1):
        graph = result.graph[graph_id]
        streams = list(dict.fromkeys(node.stream.value for node in graph))
        rows.append(
            (
                f"{number:>2}",
                graph_id.name,
                str(len(graph)),
                str(len(graph.stages)),
                " ".join(streams) or "-",
                _remark(graph_id, graph),
            )
        )
    return "\n".join([*columns(rows, frozenset({2, 3})), "", "then slots A and B swap"])


def _remark(graph_id: GraphId, graph: SubGraph) -> str:
    if not len(graph):
        return "nothing to do in this configuration"
    if graph_id in BESIDE:
        return f"beside {BESIDE[graph_id].name}"
    return "only if no gradient overflowed" if graph_id in ONLY_IF_FINITE else ""


def graph_table(result: CompiledGraph) -> str:
    """All 33 sub-graphs with the operations they hold."""
    lines: list[str] = []
    for graph in result.graph:
        operations = _operations(graph) or ["-"]
        lines += _wrapped(f"{graph.id.value:>2}  {graph.id.name:<28}", operations, indent=32)
    return "\n".join(lines)


def _operations(graph: SubGraph) -> list[str]:
    """Names of operations with their counts, as words to be wrapped."""
    counted = Counter(node.op for node in graph)
    words = [op if n == 1 else f"{n} {op}" for op, n in counted.items()]
    return [*(word + "," for word in words[:-1]), *words[-1:]]
