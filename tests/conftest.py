"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def executables_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the executables of this session are kept."""
    return str(tmp_path_factory.mktemp("executables"))


@pytest.fixture(scope="module")
def compiled_once(executables_folder: str) -> Iterator[dict[str, str]]:
    """Equal executables of different tests are compiled once, through jax's cache on disk.

    Yields:
        Environment variables that let another process share them.
    """
    import jax  # here, so that rooms that need no jax are tested without it

    wanted = {
        "jax_compilation_cache_dir": executables_folder,
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    _configure(wanted)
    yield {name.upper(): str(value) for name, value in wanted.items()}
    _configure(before)


def _configure(values: dict) -> None:
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    for name, value in values.items():
        jax.config.update(name, value)
    reset_cache()
