"""How this session compiles: equal programs once, through jax's cache on disk.

Most of the time of these tests is compilation of programs that then run for milliseconds. The cache
is set through the environment, before anybody imports jax (the rooms without it are tested where it
cannot be imported), and other processes inherit it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

_CACHE = {
    "JAX_COMPILATION_CACHE_DIR": "",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _CACHE["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="renaissance_tests_")
    atexit.register(shutil.rmtree, _CACHE["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    os.environ.update(_CACHE)


@pytest.fixture
def compiling_anew() -> dict[str, str]:
    """The environment of a process that compiles everything itself."""
    kept = {name: value for name, value in os.environ.items() if name not in _CACHE}
    return {**kept, "JAX_ENABLE_COMPILATION_CACHE": "false"}
