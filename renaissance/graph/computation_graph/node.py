"""The two kinds of graph node: COMPUTE works on tensors, RANGE on runs of whole regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from renaissance.core.types import StreamKind
from renaissance.graph.computation_graph.operands import Operands, Ref, RegionRun
from renaissance.graph.computation_graph.vocabulary import check_operation

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ComputeNode:
    """One operation on tensors.

    Attributes:
        op: Name in the vocabulary, such as ``"fc_forward"``.
        inputs: Tensors read, by role.
        outputs: Tensors written, by role.
        params: Attributes that do not depend on shapes (stride, eps, activation...).
        stream: Stream it is enqueued on.
        layer: Name of the primitive layer it works for.
    """

    op: str
    inputs: Operands[Ref]
    outputs: Operands[Ref]
    params: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    stream: StreamKind = StreamKind.COMP_1
    layer: str = ""

    def __post_init__(self) -> None:
        check_operation(self.op, self.layer, self.inputs, self.outputs)

    @property
    def reads(self) -> tuple[Ref, ...]:
        """Tensors read, in the operation's order."""
        return self.inputs.all

    @property
    def writes(self) -> tuple[Ref, ...]:
        """Tensors written, in the operation's order."""
        return self.outputs.all

    @property
    def read_runs(self) -> tuple[RegionRun, ...]:
        """A COMPUTE node reads no runs."""
        return ()

    @property
    def written_runs(self) -> tuple[RegionRun, ...]:
        """A COMPUTE node writes no runs."""
        return ()

    def map_refs(self, change: Callable[[Ref], Ref]) -> ComputeNode:
        """The same operation on other tensors (slot B for slot A, EMA weights for main ones)."""
        return replace(self, inputs=self.inputs.map(change), outputs=self.outputs.map(change))

    def __str__(self) -> str:
        params = ", ".join(f"{k}={v}" for k, v in self.params.items() if v is not None)
        return f"{self.op}({self.inputs!r}) -> {self.outputs!r}" + (
            f"  [{params}]" if params else ""
        )


@dataclass(frozen=True, slots=True)
class RangeNode:
    """One operation on runs of whole regions: a single launch however many tensors they hold.

    Runs of one node that are walked together hold twins at equal element offsets.

    Attributes:
        op: Name in the vocabulary, such as ``"clear"`` or ``"optimizer_update"``.
        read: Runs read, by role.
        written: Runs written, by role; a run updated in place appears in both.
        inputs: Single tensors read beside the runs (scalars), by role.
        outputs: Single tensors written beside the runs, by role.
        params: Attributes.
        stream: Stream it is enqueued on.
    """

    op: str
    read: Operands[RegionRun] = field(default_factory=Operands)
    written: Operands[RegionRun] = field(default_factory=Operands)
    inputs: Operands[Ref] = field(default_factory=Operands)
    outputs: Operands[Ref] = field(default_factory=Operands)
    params: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    stream: StreamKind = StreamKind.COMP_1

    def __post_init__(self) -> None:
        check_operation(self.op, "", {**self.read, **self.inputs}, {**self.written, **self.outputs})
        for run in (*self.read.all, *self.written.all):
            run.check()

    @property
    def layer(self) -> str:
        """A RANGE node works for no single layer."""
        return ""

    @property
    def reads(self) -> tuple[Ref, ...]:
        """Single tensors read."""
        return self.inputs.all

    @property
    def writes(self) -> tuple[Ref, ...]:
        """Single tensors written."""
        return self.outputs.all

    @property
    def read_runs(self) -> tuple[RegionRun, ...]:
        """Runs read."""
        return self.read.all

    @property
    def written_runs(self) -> tuple[RegionRun, ...]:
        """Runs written."""
        return self.written.all

    def map_refs(self, change: Callable[[Ref], Ref]) -> RangeNode:
        """The same operation on the same runs, beside other tensors."""
        return replace(self, inputs=self.inputs.map(change), outputs=self.outputs.map(change))

    def __str__(self) -> str:
        sources = ", ".join(f"{o!r}" for o in (self.read, self.inputs) if len(o))
        results = ", ".join(f"{o!r}" for o in (self.written, self.outputs) if len(o))
        params = ", ".join(f"{k}={v}" for k, v in self.params.items() if v is not None)
        return f"{self.op}({sources}) -> {results}" + (f"  [{params}]" if params else "")


Node = ComputeNode | RangeNode
