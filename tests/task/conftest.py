"""Small data and small tasks: every training here takes a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import renaissance as rn
from renaissance.core.settings import Settings
from renaissance.data import ArrayDataset, Loader, loader
from renaissance.task import DeepLearningTask

CLASSES = 3


def pictures(count: int, *, side: int = 6, channels: int = 1, seed: int = 0) -> ArrayDataset:
    """Noise with one bright row of blocks per class: easy, but not at once."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count)
    images = generator.integers(0, 120, (count, side, side, channels))
    for index, label in enumerate(labels):
        images[index, 2 * label : 2 * label + 2] += 60
    return ArrayDataset(images.astype(np.uint8), labels, CLASSES, "blocks")


def batches(count: int = 48, batch: int = 16, *, shuffle: bool = True, **options) -> Loader:
    """A loader over :func:`pictures`: 48 samples are three batches of 16, 50 leave a last of 2."""
    side, channels, seed = (
        options.pop("side", 6),
        options.pop("channels", 1),
        options.pop("data", 0),
    )
    dataset = pictures(count, side=side, channels=channels, seed=seed)
    return loader(dataset, batch_size=batch, shuffle=shuffle, seed=5, **options)


@pytest.fixture(autouse=True, scope="package")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Equal executables of different tests are compiled once, through jax's cache on disk."""
    wanted = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("executables")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for settings in (wanted, before):
        for name, value in settings.items():
            jax.config.update(name, value)
        reset_cache()
        if settings is wanted:
            yield


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
