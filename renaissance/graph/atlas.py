"""GraphAtlas: from a variant and a graph id to its executable, in O(1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import GraphId, Variant
from renaissance.graph.computation_graph import ComputationGraph
from renaissance.graph.options import ShapeId

Executable = TypeVar("Executable")


class ExecutableKey(NamedTuple):
    """What an executable is compiled for.

    Attributes:
        graph_id: The sub-graph.
        shape_id: The input shape; None for a sub-graph that works on no rows, so that one serves
            all variants.
    """

    graph_id: GraphId
    shape_id: ShapeId | None


class GraphAtlas(Generic[Executable]):
    """6 variants x 33 sub-graphs. Variants of equal shape share entries; so do all variants where
    the sub-graph does not depend on the shape."""

    def __init__(self, graph: ComputationGraph, shape_ids: Sequence[ShapeId]):
        """
        Args:
            graph: The sub-graphs, shared by all variants.
            shape_ids: The input shape of each of the six variants.
        """
        if len(shape_ids) != len(Variant):
            fail(PlanError, "number of shapes", len(shape_ids), f"{len(Variant)}, one a variant")
        self._keys = [
            ExecutableKey(sub.id, shape_id if sub.depends_on_shape else None)
            for shape_id in shape_ids
            for sub in graph
        ]
        self._slots = {key: index for index, key in enumerate(dict.fromkeys(self._keys))}
        self._index = [self._slots[key] for key in self._keys]
        self._executables: list[Executable | None] = [None] * len(self._slots)

    def key(self, variant: Variant, graph_id: GraphId) -> ExecutableKey:
        """What the executable of this entry is compiled for."""
        return self._keys[variant * len(GraphId) + graph_id]

    def keys(self) -> Iterator[ExecutableKey]:
        """The distinct executables, each once."""
        return iter(self._slots)

    def bind(self, key: ExecutableKey, executable: Executable) -> None:
        """Enter an executable for all entries that share its key.

        Raises:
            PlanError: no entry has that key.
        """
        if key not in self._slots:
            fail(PlanError, "executable key", key, "a key of this atlas")
        self._executables[self._slots[key]] = executable

    def __getitem__(self, entry: tuple[Variant, GraphId]) -> Executable:
        """The executable of a variant and a sub-graph.

        Raises:
            PlanError: none was bound.
        """
        variant, graph_id = entry
        executable = self._executables[self._index[variant * len(GraphId) + graph_id]]
        if executable is None:
            what = f"executable of {graph_id.name} in {variant.name.lower()}"
            fail(PlanError, what, None, "bind() before the first run")
        return executable

    def __len__(self) -> int:
        return len(self._keys)
