"""How this session compiles: equal programs once, and without polishing what runs for milliseconds.

Most of the time of these tests is compilation. What was compiled is kept on disk, by jax's own
cache, for all processes of the session; and where XLA compiles for a processor, it does not
optimise its code. The fresh processes of ``test_determinism`` and the example of the README run as
users have it, and with ``XLA_FLAGS= make test`` everything does.

All is set through the environment, before anybody imports jax (the rooms without it are tested
where it cannot be imported), and other processes inherit it.
"""

from __future__ import annotations

import atexit
import importlib.util
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

FOLDER = "RENAISSANCE_TESTS_FOLDER"
"""Names the folder in which the processes of a session share what they build."""
_SET = "RENAISSANCE_TESTS_SET"
"""Names what was set here, so that other processes can tell it from what the user set."""
_QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def _known(flags: Iterable[str]) -> list[str]:
    """The flags that the installed XLA has: one that it has not would end the process."""
    found = importlib.util.find_spec("jaxlib")
    folder = Path(found.origin).parent if found and found.origin else Path()
    known = []
    for path in folder.glob("libjax_common*"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
            known += [f for f in flags if code.find(f.strip("-").split("=")[0].encode()) >= 0]
    return known


def _settings() -> dict[str, str]:
    folder = tempfile.mkdtemp(prefix="renaissance_tests_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    settings = {FOLDER: folder}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        settings["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/xla"
        settings["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.03"
        settings["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if "XLA_FLAGS" not in os.environ and not Path("/dev/nvidiactl").exists():
        settings["XLA_FLAGS"] = " ".join(_known(_QUICKLY))
    return {**settings, _SET: " ".join(settings)}


if FOLDER not in os.environ:
    os.environ.update(_settings())


@pytest.fixture
def compiling_anew() -> dict[str, str]:
    """The environment of a process that compiles everything itself, as it does for users."""
    ours = os.environ[_SET].split()
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "JAX_ENABLE_COMPILATION_CACHE": "false"}
