"""Which node waits for which: derived from reads and writes, never declared by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from renaissance.core.errors import PlanError
from renaissance.core.types import REGIONS, Bank, Region
from renaissance.graph.computation_graph.node import Node
from renaissance.graph.computation_graph.operands import Ref, RegionRun

Dependencies = tuple[tuple[int, ...], ...]

_SCRATCH = frozenset(region for region in REGIONS if region.bank is Bank.SCRATCH)


class _History:
    """The last writer and the readers since, of tensors and of whole regions."""

    def __init__(self) -> None:
        self._writer: dict[Ref | Region, int] = {}
        self._readers: dict[Ref | Region, list[int]] = {}
        self._tensors: dict[Region, set[Ref]] = {}

    def read(self, index: int, key: Ref | Region) -> set[int]:
        waits = {self._writer[k] for k in self._overlapping(key) if k in self._writer}
        self._readers.setdefault(key, []).append(index)
        self._remember(key)
        return waits

    def write(self, index: int, key: Ref | Region) -> set[int]:
        waits: set[int] = set()
        for k in self._overlapping(key):
            waits.update(self._readers.get(k, ()))
            if k in self._writer:
                waits.add(self._writer[k])
        if isinstance(key, Region):  # whoever touches one of its tensors now waits for this node
            for tensor in self._tensors.pop(key, ()):
                self._writer.pop(tensor, None)
                self._readers.pop(tensor, None)
        self._writer[key] = index
        self._readers[key] = []
        self._remember(key)
        return waits

    def _overlapping(self, key: Ref | Region) -> list[Ref | Region]:
        if isinstance(key, Region):
            return [key, *self._tensors.get(key, ())]
        return [key, key.region]

    def _remember(self, key: Ref | Region) -> None:
        if isinstance(key, Ref):
            self._tensors.setdefault(key.region, set()).add(key)


def _keys(tensors: Iterable[Ref], runs: Iterable[RegionRun]) -> list[Ref | Region]:
    return [*tensors, *(region for run in runs for region in run.regions)]


def derive_dependencies(nodes: Sequence[Node]) -> Dependencies:
    """For every node the earlier nodes it must wait for, by index.

    A node waits for the writer of what it reads, and for writer and readers of what it writes. A
    run overlaps every tensor of its regions.
    """
    history, result = _History(), []
    for index, node in enumerate(nodes):
        waits: set[int] = set()
        for key in _keys(node.reads, node.read_runs):
            waits |= history.read(index, key)
        for key in _keys(node.writes, node.written_runs):
            waits |= history.write(index, key)
        waits.discard(index)
        result.append(tuple(sorted(waits)))
    return tuple(result)


def check_no_cycle(dependencies: Dependencies) -> None:
    """Kahn's algorithm: every node can run once those it waits for have run.

    Raises:
        PlanError: names the nodes of the cycle by index.
    """
    waiting = [len(set(waits)) for waits in dependencies]
    followers: list[list[int]] = [[] for _ in dependencies]
    for index, waits in enumerate(dependencies):
        for earlier in set(waits):
            followers[earlier].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    for index in ready:  # grows while it is walked
        for follower in followers[index]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if len(ready) < len(dependencies):
        stuck = sorted(set(range(len(dependencies))) - set(ready))
        raise PlanError(f"nodes {stuck} wait for each other in a circle, expected an order")


def split_stages(nodes: Sequence[Node], dependencies: Dependencies) -> tuple[int, ...]:
    """The stage of every node: nodes of one stage run side by side, stages one after the other.

    A node joins the stage before it when it waits for none of its nodes and its stream is not yet
    taken; all streams join at the end of a stage, so memory freed in one stage is safe in the next.
    """
    stages: list[int] = []
    stage, begin = -1, 0
    for index, node in enumerate(nodes):
        streams = {other.stream for other in nodes[begin:index]}
        joins = node.stream not in streams and all(w < begin for w in dependencies[index])
        if index == 0 or not joins:
            stage, begin = stage + 1, index
        stages.append(stage)
    return tuple(stages)


def check_reads(nodes: Iterable[Node], written: set[Ref | Region] | None = None) -> None:
    """Refuse a read of scratch memory that nothing has written before.

    Args:
        nodes: In execution order.
        written: Tensors and regions written already; grows.

    Raises:
        PlanError: names the operation, its layer and the tensor.
    """
    written = set() if written is None else written
    for node in nodes:
        for ref in node.reads:
            known = ref in written or ref.region in written
            if ref.region in _SCRATCH and not known:
                where = f" of {node.layer}" if node.layer else ""
                raise PlanError(
                    f"{node.op}{where} reads {ref}, expected something to write it before"
                )
        written.update(node.writes)
        written.update(region for run in node.written_runs for region in run.regions)
