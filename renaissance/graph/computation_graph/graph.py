"""ComputationGraph: 33 sub-graphs, shared by all variants because they hold no shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Bank, GraphId
from renaissance.graph.computation_graph.dependencies import (
    Dependencies,
    check_no_cycle,
    check_reads,
    derive_dependencies,
    split_stages,
)
from renaissance.graph.computation_graph.node import ComputeNode, Node
from renaissance.graph.computation_graph.operands import Ref

_WITH_ROWS = ("I_", "F_", "S_MASK")
"""Regions whose tensors have a row for every sample of the batch."""


@dataclass(frozen=True)
class SubGraph:
    """The nodes of one :class:`GraphId`, in execution order; possibly none.

    Attributes:
        id: Which of the 33.
        nodes: COMPUTE and RANGE nodes.
    """

    id: GraphId
    nodes: tuple[Node, ...] = ()

    @cached_property
    def dependencies(self) -> Dependencies:
        """For every node the earlier nodes of this sub-graph it waits for."""
        return derive_dependencies(self.nodes)

    @cached_property
    def stage_of(self) -> tuple[int, ...]:
        """For every node the number of its stage."""
        return split_stages(self.nodes, self.dependencies)

    @cached_property
    def stages(self) -> tuple[tuple[Node, ...], ...]:
        """The nodes by stage. Nodes of one stage may run side by side on their streams."""
        groups: list[list[Node]] = []
        for stage, node in zip(self.stage_of, self.nodes, strict=True):
            if stage == len(groups):
                groups.append([])
            groups[stage].append(node)
        return tuple(tuple(group) for group in groups)

    @cached_property
    def depends_on_shape(self) -> bool:
        """Whether its executable differs between input shapes: some node works on rows."""
        refs = (ref.region for node in self.nodes for ref in (*node.reads, *node.writes))
        runs = (run.first for node in self.nodes for run in node.written_runs)
        return any(region.name.startswith(_WITH_ROWS) for region in (*refs, *runs))

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The banks its nodes touch."""
        touched = set()
        for node in self.nodes:
            touched |= {ref.region.bank for ref in (*node.reads, *node.writes)}
            touched |= {run.bank for run in (*node.read_runs, *node.written_runs)}
        return tuple(bank for bank in Bank if bank in touched)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


class ComputationGraph:
    """All 33 sub-graphs of a network; ``graph[GraphId.DEEP_FWD_BWD]`` is one of them."""

    def __init__(self, nodes: Mapping[GraphId, Iterable[Node]]):
        """
        Args:
            nodes: The nodes of each id, or its finished :class:`SubGraph`; ids that are missing
                hold no nodes.
        """
        self._subgraphs = tuple(_subgraph(i, nodes.get(i, ())) for i in GraphId)

    def __getitem__(self, graph_id: GraphId) -> SubGraph:
        return self._subgraphs[graph_id]

    def __iter__(self) -> Iterator[SubGraph]:
        return iter(self._subgraphs)

    def __len__(self) -> int:
        return len(self._subgraphs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputationGraph) and self._subgraphs == other._subgraphs

    def __hash__(self) -> int:
        return hash(self._subgraphs)

    def nodes(self, order: Iterable[GraphId]) -> Iterator[Node]:
        """The nodes of several sub-graphs, one after the other."""
        for graph_id in order:
            yield from self[graph_id]

    def tensors(self) -> dict[Ref, None]:
        """Every tensor a node names, in order of first use."""
        return {
            ref: None for graph in self for node in graph for ref in (*node.reads, *node.writes)
        }

    def validate(self, *orders: Iterable[GraphId]) -> None:
        """Prove that every order can run: no cycles, nothing read before it is written.

        Raises:
            PlanError: says what breaks and where.
        """
        for graph in self:
            check_no_cycle(graph.dependencies)
        for order in orders:
            check_reads(self.nodes(order))

    def __str__(self) -> str:
        lines = []
        for graph in self:
            lines.append(f"{graph.id.value:2d} {graph.id.name}: {len(graph)} nodes")
            lines += [f"     {node}" for node in graph]
        return "\n".join(lines)


def _subgraph(graph_id: GraphId, nodes: Iterable[Node]) -> SubGraph:
    return nodes if isinstance(nodes, SubGraph) else SubGraph(graph_id, tuple(nodes))


def single_writer(nodes: Iterable[Node]) -> None:
    """Refuse a feature or gradient that two COMPUTE nodes write: tensors are assigned once.

    Raises:
        PlanError: names the tensor and the second writer.
    """
    seen: set[Ref] = set()
    for node in nodes:
        for ref in node.writes:
            if isinstance(node, ComputeNode) and ref.region.name[0] in "FT" and ref in seen:
                fail(PlanError, f"writer of {ref}", node.op, "one writer only")
            seen.add(ref)
