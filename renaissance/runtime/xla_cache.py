"""JAX's own cache of compiled programs, in a folder of ours where the user has chosen none.

A second run of the same training then starts without compiling. What JAX puts into its keys (the
program, its options, the version of JAX, the device) does not know our native library, nor which
instructions a CPU has; so both name the folder, and a new version of anything simply misses.

Set ``JAX_COMPILATION_CACHE_DIR`` to keep programs elsewhere (JAX's own setting, never touched once
it is made), ``RENAISSANCE_CACHE`` to move all our caches, ``JAX_ENABLE_COMPILATION_CACHE=false`` to
have none. JAX stores what took it more than a second
(``JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS``), and compiles again, with a warning, what it cannot
read.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

import renaissance
from renaissance.runtime import library
from renaissance.runtime.compile_cache import default_folder, key_of


@functools.cache
def enable() -> Path | None:
    """Give JAX a folder for its cache, once in a process, before a program is compiled.

    Returns:
        The folder; None where the user has chosen one or wants none, or where it cannot be written
        to: then nothing changes.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return None
    folder = default_folder() / "xla" / _versions()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    config.update("jax_compilation_cache_dir", str(folder))
    # JAX looks at its settings at the first compilation only; there may have been some already
    compilation_cache.reset_cache()
    return folder


def _versions() -> str:
    """Names everything that JAX's keys leave out."""
    path = library.find()
    try:
        native = b"" if path is None else path.read_bytes()
    except OSError:
        native = b""
    return key_of(renaissance.__version__, native, processor())[:16]


def processor() -> str:
    """The instructions this machine's processor has, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = ("flags", "Features", "model name")
    found = dict.fromkeys(line for line in lines if line.split("\t")[0].strip() in names)
    return "\n".join([platform.machine(), *found])
