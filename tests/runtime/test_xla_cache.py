"""JAX's cache lies in our folder unless the user decided otherwise, and never stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from renaissance.runtime import library, xla_cache

RUN = """
import jax, numpy as np
from jax._src import monitoring
from renaissance.runtime.executables import aot_compile
hits = []
monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("cache_hits")))
jax.jit(lambda x: x + 1)(1.0)  # the cache is looked for before it is set
made = aot_compile("step", lambda s, x: s * x + 1, np.ones(3, np.float32), np.float32(2))
print(made(np.full(3, 5, np.float32), np.float32(2))[0], sum(hits))
"""


def settings(folder: str | None = None, wanted: bool = True) -> Any:
    """Stands in for jax: its settings, and what they were updated to."""
    changed: dict[str, Any] = {}
    config = SimpleNamespace(
        jax_compilation_cache_dir=folder,
        jax_enable_compilation_cache=wanted,
        update=changed.__setitem__,
    )
    return SimpleNamespace(config=config, changed=changed)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RENAISSANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(xla_cache.compilation_cache, "reset_cache", lambda: None)
    return tmp_path


@pytest.mark.parametrize("stand_in", [settings("/theirs"), settings(wanted=False)])
def test_the_users_choice_stays(
    stand_in: Any, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_cache, "jax", stand_in)
    assert xla_cache.enable.__wrapped__() is None
    assert not stand_in.changed and not list(untouched.iterdir())


def test_another_library_means_another_folder(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for content in (b"one", b"two", b"one"):
        (untouched / "native.so").write_bytes(content)
        monkeypatch.setenv(library.PATH_VARIABLE, str(untouched / "native.so"))
        stand_in = settings()
        monkeypatch.setattr(xla_cache, "jax", stand_in)
        folders.append(xla_cache.enable.__wrapped__())
        assert stand_in.changed == {"jax_compilation_cache_dir": str(folders[-1])}
    assert folders[0] == folders[2] != folders[1]
    assert folders[0].parent == untouched / "cache" / "xla"


def test_a_folder_that_cannot_be_made_changes_nothing(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (untouched / "cache").write_text("a file where the folder should be")
    stand_in = settings()
    monkeypatch.setattr(xla_cache, "jax", stand_in)
    assert xla_cache.enable.__wrapped__() is None
    assert not stand_in.changed


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    environment = {
        **{n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"},
        "RENAISSANCE_CACHE": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-c", RUN]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    hits = [int(run.stdout.split()[-1]) for run in runs]
    assert hits[0] == 0 < hits[1]
    assert runs[0].stdout.startswith("11.0")
    assert list((tmp_path / "xla").iterdir())
