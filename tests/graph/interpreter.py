"""Runs a computation graph in numpy: node by node, on arrays or in the planned bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from renaissance.core.types import Bank
from renaissance.graph.computation_graph import ComputeNode, Node, Ref
from renaissance.graph.memory_plan import MemoryPlan
from tests.graph.meaning import MEANING, Array


class Memory(Protocol):
    """Where tensors are kept."""

    def read(self, ref: Ref) -> Array: ...

    def write(self, ref: Ref, value: Array) -> None: ...


class Exact:
    """Every tensor an array of its own, in float64: no placement, hardly any rounding."""

    def __init__(self, plan: MemoryPlan):
        self.plan = plan
        self.arrays: dict[Ref, Array] = {}

    def read(self, ref: Ref) -> Array:
        return self.arrays[ref]

    def write(self, ref: Ref, value: Array) -> None:
        shape = self.plan.tensor(ref).shape
        self.arrays[ref] = np.asarray(value, np.float64).reshape(shape)


class Planned:
    """The banks of a memory plan, filled with NaN; every tensor at its offset, in its type."""

    def __init__(self, plan: MemoryPlan):
        self.plan = plan
        self.banks = {bank: np.full(plan.bank_bytes(bank), 0xFF, np.uint8) for bank in Bank}

    def view(self, ref: Ref) -> Array:
        t = self.plan.tensor(ref)
        chunk = self.banks[t.bank][t.offset : t.offset + t.nbytes]
        return chunk.view(t.dtype.numpy).reshape(t.shape)

    def read(self, ref: Ref) -> Array:
        found = self.view(ref)
        return found.astype(np.float64) if found.dtype.kind == "f" else found.copy()

    def write(self, ref: Ref, value: Array) -> None:
        view = self.view(ref)
        view[...] = np.asarray(value).reshape(view.shape)


def run(nodes: Iterable[Node], memory: Memory) -> None:
    """Run the COMPUTE nodes in order; RANGE nodes are left out."""
    for node in nodes:
        if isinstance(node, ComputeNode) and node.op in MEANING:
            reads = {role: memory.read(ref) for role, ref in node.inputs.items()}
            shapes = {role: memory.plan.tensor(ref).shape for role, ref in node.outputs.items()}
            results = MEANING[node.op](reads, dict(node.params), shapes)
            for role, ref in node.outputs.items():
                if role in results:
                    memory.write(ref, results[role])
        elif isinstance(node, ComputeNode) and node.layer:
            raise NotImplementedError(node.op)
