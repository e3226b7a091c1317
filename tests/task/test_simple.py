"""SimpleTask: tensors and operations by hand, on planned memory, as one donated executable."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import PhaseError, ShapeError
from renaissance.core.types import DType, Phase, Region
from renaissance.runtime.executables import alias_map
from renaissance.task import SimpleTask


def saxpy() -> tuple[SimpleTask, tuple, tuple]:
    task = SimpleTask("saxpy")
    x, y = task.tensor("x", (5,)), task.tensor("y", (5,))
    task.operation(lambda x, y: 2 * x + y, reads=(x, y), writes=(y,))
    return task, x, y


def test_operations_run_in_order_as_often_as_asked():
    task, x, y = saxpy()
    task.compile().write(x, np.arange(5)).run(times=3)
    assert task.read(y).tolist() == [0, 6, 12, 18, 24]
    assert task.read(x).tolist() == [0, 1, 2, 3, 4]


def test_an_operation_sees_what_earlier_ones_wrote():
    task = SimpleTask()
    counter = task.tensor("counter", (1,), DType.INT32)
    square = task.tensor("square", (1,), DType.INT32)
    task.operation(lambda c: c + 1, reads=(counter,), writes=(counter,))
    task.operation(lambda c: c * c, reads=(counter,), writes=(square,))
    task.compile().run(times=4)
    assert (task.read(counter)[0], task.read(square)[0]) == (4, 16)


def test_several_results_go_to_several_tensors():
    task = SimpleTask()
    x, low, high = (task.tensor(n, s) for n, s in (("x", (2, 3)), ("low", (3,)), ("high", (3,))))
    task.operation(lambda x: (x.min(0), x.max(0)), reads=(x,), writes=(low, high))
    task.compile().write(x, [[1, 5, 2], [3, 4, 9]]).run()
    assert task.read(low).tolist() == [1, 4, 2]
    assert task.read(high).tolist() == [3, 5, 9]


def test_every_tensor_has_its_own_aligned_place():
    task = SimpleTask()
    refs = [task.tensor(f"t{i}", (i + 1, 7)) for i in range(4)]
    refs.append(task.tensor("w", (3, 3), DType.FP16, Region.A_FC_WEIGHT))
    task.operation(lambda a: a, reads=refs[:1], writes=refs[:1])
    task.finalize_memory()
    task.memory.validate()
    placed = [task.memory.tensor(ref) for ref in refs]
    assert all(t.offset % 256 == 0 for t in placed)
    assert placed[4].region is Region.A_FC_WEIGHT
    ends = sorted((t.offset, t.end) for t in placed[:4])
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))


def test_the_state_is_donated_leaf_by_leaf():
    task, _, _ = saxpy()
    task.compile()
    assert task._executable is not None
    assert alias_map(task._executable.compiled) == {0: 0, 1: 1}


def test_what_was_read_is_a_copy():
    task, x, y = saxpy()
    before = task.compile().write(x, np.ones(5)).run().read(y)
    task.run()
    assert before.tolist() == [2.0] * 5


def test_the_phases_go_one_way():
    task, x, y = saxpy()
    for call in (task.run, lambda: task.read(y), lambda: task.write(x, np.ones(5))):
        with pytest.raises(PhaseError, match=r"in phase PLANNING.*call compile\(\) first"):
            call()
    with pytest.raises(PhaseError, match="memory came in phase PLANNING"):
        _ = task.memory
    task.finalize_memory()
    assert task.phase is Phase.MEMORY_LOCKED
    with pytest.raises(PhaseError, match="tensor came in phase MEMORY_LOCKED"):
        task.tensor("late", (1,))
    with pytest.raises(PhaseError, match="operation came in phase MEMORY_LOCKED"):
        task.operation(jnp.negative, reads=(x,), writes=(x,))
    task.compile()
    with pytest.raises(PhaseError, match="compile came in phase COMPILED"):
        task.compile()


def test_wrong_declarations_are_named():
    task, x, _ = saxpy()
    other = SimpleTask().tensor("z", (2,))
    for call, words in (
        (lambda: task.tensor("x", (2,)), "T_TEMP_FP32/x"),
        (lambda: task.tensor("z", (2, 0)), "extent of z is 0"),
        (lambda: task.tensor("z", (2,), DType.FP64), "dtype of z"),
        (lambda: task.operation(jnp.negative, reads=(other,), writes=(x,)), "T_TEMP_FP32/z"),
        (lambda: task.operation(jnp.negative, reads=(x,), writes=()), "at least one tensor"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="a function of jax arrays"):
        task.operation("negative", writes=(x,))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x[:2], r"float32\[2\]', expected float32\[5\]"),
        (lambda x: x.astype(jnp.float16), r"float16\[5\]', expected float32\[5\]"),
        (lambda x: (x, x), "number of results of <lambda> is 2, expected 1"),
    ],
)
def test_a_result_that_does_not_fit_its_tensor_is_refused_before_compiling(function, words):
    task = SimpleTask()
    x = task.tensor("x", (5,))
    task.operation(function, reads=(x,), writes=(x,))
    with pytest.raises(ShapeError, match=words):
        task.compile()
    assert task.phase is Phase.MEMORY_LOCKED


def test_a_value_of_another_shape_is_refused():
    task, x, _ = saxpy()
    task.compile()
    with pytest.raises(ShapeError, match=r"T_TEMP_FP32/x is \(4,\), expected \(5,\)"):
        task.write(x, np.ones(4))
