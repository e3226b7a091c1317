"""Small tasks for the tests of the task room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_data import CLASSES, batches

import renaissance as rn
from renaissance.core.settings import Settings
from renaissance.task import DeepLearningTask


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., DeepLearningTask]:
    """A configured task on small data; keyword arguments replace its parts."""

    def make(
        name: str = "t",
        *,
        settings: Settings | None = None,
        model: object = None,
        train: object = None,
        val: object = None,
        validate: bool = True,
        epochs: int = 4,
        quiet: bool = True,
        files: bool = True,
    ) -> DeepLearningTask:
        task = DeepLearningTask(
            name,
            Settings().manual_seed(1) if settings is None else settings,
            runs=tmp_path / "runs" if files else None,
            quiet=quiet,
        )
        held_out = batches(16, 8, shuffle=False, data=1) if val is None else val
        task.data(batches() if train is None else train, held_out if validate else None)
        task.model(model or rn.seq(rn.flatten(), rn.fc(8), rn.relu(), rn.fc(CLASSES)))
        return task.optimizer(rn.SGD(momentum=0.9)).total_epochs(epochs)

    return make
