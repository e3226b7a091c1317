"""SimpleTask: a graph built by hand on planned memory, for research and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from renaissance.core.errors import ShapeError, check_int, fail
from renaissance.core.types import DType, Phase, Region, Shape, Variant
from renaissance.graph.computation_graph import Ref
from renaissance.graph.memory_plan import Lifetime, MemoryPlan, Requirement, lay_out, size_slots
from renaissance.graph.memory_plan.requirement import VariantShapes
from renaissance.graph.options import ShapeId
from renaissance.lowering.state import ArrayState, owned
from renaissance.runtime.executables import Executable, aot_compile
from renaissance.task.base import TaskBase

_DEFAULT_REGION = {
    DType.FP32: Region.T_TEMP_FP32,
    DType.FP16: Region.T_TEMP_FP16,
    DType.INT32: Region.T_TEMP_INT32,
    DType.INT8: Region.T_TEMP_INT8,
}


def _always(shape: tuple[int, ...]) -> Callable[[VariantShapes], tuple[int, ...]]:
    """The shape rule of a tensor that is the same in all variants."""
    return lambda shapes: shape


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of the graph: ``writes = function(*reads)``."""

    function: Callable[..., Any]
    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__name__", repr(self.function))


class SimpleTask(TaskBase):
    """Declare tensors and operations, lock the memory, compile, run::

        task = SimpleTask("saxpy")
        x, y = task.tensor("x", (1024,)), task.tensor("y", (1024,))
        task.operation(lambda x, y: 2 * x + y, reads=(x, y), writes=(y,))
        task.compile()
        task.write(x, numpy.ones(1024))
        task.run(times=3)
        task.read(y)

    The operations become one executable over a donated state, in the order they were added.
    """

    def __init__(self, name: str = "simple") -> None:
        super().__init__(name)
        self._requirements: dict[Ref, tuple[tuple[int, ...], DType]] = {}
        self._operations: list[Operation] = []
        self._memory: MemoryPlan | None = None
        self._state: ArrayState | None = None
        self._executable: Executable | None = None

    # -- PLANNING ---------------------------------------------------------------------------------

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType = DType.FP32,
        region: Region | None = None,
    ) -> Ref:
        """Declare a tensor; it starts as zeros.

        Args:
            name: Unique in its region.
            shape: Extents, each at least 1.
            dtype: FP32, FP16, INT32 or INT8.
            region: Where it lies; the workspace of its type unless given.

        Raises:
            PhaseError: memory is locked.
        """
        self.require(Phase.PLANNING, "tensor")
        if dtype not in _DEFAULT_REGION:
            fail(ValueError, f"dtype of {name}", dtype, "FP32, FP16, INT32 or INT8")
        extents = tuple(check_int(f"extent of {name}", d, 1) for d in shape)
        ref = Ref(_DEFAULT_REGION[dtype] if region is None else region, name)
        if ref in self._requirements:
            fail(ValueError, "tensor", str(ref), "a name not yet taken in its region")
        self._requirements[ref] = (extents, dtype)
        return ref

    def operation(
        self, function: Callable[..., Any], *, reads: Sequence[Ref] = (), writes: Sequence[Ref]
    ) -> None:
        """Add ``writes = function(*reads)`` at the end of the graph.

        Args:
            function: A pure function of jax arrays; returns one array, or a tuple for several
                writes, of exactly their shapes and types.
            reads: Tensors of this task.
            writes: Tensors of this task.

        Raises:
            PhaseError: memory is locked.
        """
        self.require(Phase.PLANNING, "operation")
        if not callable(function):
            fail(TypeError, "operation", function, "a function of jax arrays")
        for ref in (*reads, *writes):
            if ref not in self._requirements:
                fail(ValueError, "operand", str(ref), "a tensor declared on this task")
        if not writes:
            fail(ValueError, "writes", writes, "at least one tensor")
        self._operations.append(Operation(function, tuple(reads), tuple(writes)))

    def finalize_memory(self) -> None:
        """Place every tensor; nothing is allocated after this.

        Raises:
            PhaseError: the task has left PLANNING.
        """
        super().finalize_memory()
        shape_id = ShapeId(1, 1, 1, 1)
        variants = (VariantShapes(Variant.TRAIN_BASE, Shape(*shape_id), {}, {}),)
        needs = [
            Requirement(ref, dtype, _always(shape))
            for ref, (shape, dtype) in self._requirements.items()
        ]
        slots = size_slots(needs, variants)
        # whoever runs the graph may read any tensor afterwards: none gives way to another
        whole = {ref: Lifetime(0, len(self._operations)) for ref in slots}
        self._memory = MemoryPlan(lay_out(slots, whole), (Variant.TRAIN_BASE,), shape_id)

    # -- MEMORY_LOCKED ----------------------------------------------------------------------------

    @property
    def memory(self) -> MemoryPlan:
        """Where every tensor lies.

        Raises:
            PhaseError: memory is not locked yet.
        """
        if self._memory is None:
            self.require(Phase.MEMORY_LOCKED, "memory")
        assert self._memory is not None
        return self._memory

    def compile(self) -> SimpleTask:
        """Compile the graph; locks the memory first if that has not happened.

        Raises:
            PhaseError: the task is compiled already.
            ShapeError: a function returns something else than the tensors it writes.
        """
        if self.phase is Phase.PLANNING:
            self.finalize_memory()
        self.require(Phase.MEMORY_LOCKED, "compile")
        state = self._zeros()
        jax.eval_shape(self._step, state)  # finds wrong shapes before anything is compiled
        self._executable = aot_compile(self.name, self._step_with_nothing, state)
        self._state = state
        self._advance("compile", Phase.COMPILED)
        return self

    def _zeros(self) -> ArrayState:
        regions: dict[Region, dict[str, Any]] = {}
        for ref, (shape, dtype) in self._requirements.items():
            regions.setdefault(ref.region, {})[ref.name] = owned(np.zeros(shape, dtype.numpy))
        return ArrayState(regions)

    def _step(self, state: ArrayState) -> ArrayState:
        for operation in self._operations:
            values = operation.function(*(state.region(r.region)[r.name] for r in operation.reads))
            results = values if isinstance(values, tuple) else (values,)
            self._check_results(operation, results)
            for ref, value in zip(operation.writes, results, strict=True):
                new = {**state.region(ref.region), ref.name: value}
                state = state.replace({ref.region: new})
        return state

    def _step_with_nothing(self, state: ArrayState) -> tuple[ArrayState, tuple[()]]:
        return self._step(state), ()

    def _check_results(self, operation: Operation, results: Sequence[Any]) -> None:
        if len(results) != len(operation.writes):
            wanted = f"{len(operation.writes)}, one for each tensor it writes"
            fail(ShapeError, f"number of results of {operation.name}", len(results), wanted)
        for ref, value in zip(operation.writes, results, strict=True):
            shape, dtype = self._requirements[ref]
            found = f"{value.dtype}{list(value.shape)}"
            expected = f"{dtype.value}{list(shape)}"
            if found != expected:
                fail(ShapeError, f"result of {operation.name} for {ref}", found, expected)

    # -- COMPILED ---------------------------------------------------------------------------------

    def run(self, times: int = 1) -> SimpleTask:
        """Run the graph.

        Raises:
            PhaseError: the task is not compiled.
        """
        self.require(Phase.COMPILED, "run")
        assert self._executable is not None
        for _ in range(check_int("times", times, 0)):
            self._state, _ = self._executable(self._state)
        return self

    def write(self, ref: Ref, value: Any) -> SimpleTask:
        """Set a tensor.

        Raises:
            PhaseError: the task is not compiled.
            ShapeError: the value has another shape.
        """
        self.require(Phase.COMPILED, "write")
        shape, dtype = self._described(ref)
        if np.shape(value) != shape:
            fail(ShapeError, f"shape of the value for {ref}", np.shape(value), str(shape))
        assert self._state is not None
        new = {**self._state.region(ref.region), ref.name: owned(value, dtype.numpy)}
        self._state = self._state.replace({ref.region: new})
        return self

    def read(self, ref: Ref) -> np.ndarray:
        """A copy of a tensor.

        Raises:
            PhaseError: the task is not compiled.
        """
        self.require(Phase.COMPILED, "read")
        self._described(ref)
        assert self._state is not None
        return np.array(self._state.region(ref.region)[ref.name])

    def _described(self, ref: Ref) -> tuple[tuple[int, ...], DType]:
        if ref not in self._requirements:
            fail(ValueError, "tensor", str(ref), "one declared on this task")
        return self._requirements[ref]
