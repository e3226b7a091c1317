"""A task goes PLANNING, MEMORY_LOCKED, COMPILED: one way, and says so when called out of turn."""

from __future__ import annotations

import pytest

from renaissance.core.errors import PhaseError
from renaissance.core.types import Phase
from renaissance.task.base import TaskBase


def test_a_new_task_is_planning():
    assert TaskBase("t").phase is Phase.PLANNING


def test_memory_is_locked_once():
    task = TaskBase("t")
    task.finalize_memory()
    assert task.phase is Phase.MEMORY_LOCKED
    with pytest.raises(PhaseError, match="finalize_memory came in phase MEMORY_LOCKED of task 't'"):
        task.finalize_memory()
    assert task.phase is Phase.MEMORY_LOCKED


@pytest.mark.parametrize(
    ("needed", "remedy"),
    [
        (Phase.MEMORY_LOCKED, r"call finalize_memory\(\) first"),
        (Phase.COMPILED, r"call compile\(\) first"),
    ],
)
def test_a_call_too_early_says_what_to_do(needed, remedy):
    with pytest.raises(PhaseError, match=f"run came in phase PLANNING.*{needed.name}.*{remedy}"):
        TaskBase("t").require(needed, "run")


def test_a_call_too_late_says_what_to_do():
    task = TaskBase("t")
    task.finalize_memory()
    with pytest.raises(PhaseError, match=r"loss .*MEMORY_LOCKED.*PLANNING.*make a new task"):
        task.require(Phase.PLANNING, "loss")


def test_the_right_phase_goes_on():
    task = TaskBase("t")
    task.require(Phase.PLANNING, "model")
    task.finalize_memory()
    task.require(Phase.MEMORY_LOCKED, "compile")


def test_repr_shows_name_and_phase():
    assert repr(TaskBase("digits")) == "TaskBase('digits', PLANNING)"
