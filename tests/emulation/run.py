"""Compiles a planned launch for the processor and runs it on arrays."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from renaissance.lowering.calls.targets import Kernel
from renaissance.lowering.launches.planned import PlannedLaunch
from renaissance.runtime.kernels import CSRC

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
# without unique symbols: shared memory of another size in another kernel is another array
FLAGS = ["-std=c++17", "-Og", "-w", "-fPIC", "-fno-gnu-unique", "-ffp-contract=off"]
FLAGS += ["-DRN_EMULATED", *(f"-I{path}" for path in (HERE, CSRC, CSRC / "kernels"))]


@functools.cache
def _built(kernel: Kernel, record: str) -> ctypes.CDLL:
    constants = [f"-D{name}={value}" for name, value in kernel.constants]
    chosen = [
        f'-DRN_SOURCE="{kernel.source}"',
        f"-DRN_KERNEL={kernel.name}",
        f"-DRN_RECORD={record}",
    ]
    # the standard library is read once, not for every kernel
    header = _made("cuda.h.gch", ["-x", "c++-header", str(HERE / "cuda.h")])
    first = [f"-I{header.parent}", "-include", "cuda.h"]
    name = hashlib.sha256(" ".join([*constants, *chosen]).encode()).hexdigest()
    source = ["-shared", *constants, *chosen, str(HERE / "emulate.cc")]
    return ctypes.CDLL(str(_made(f"{name}.so", source, first)))


def _made(name: str, arguments: Sequence[str], first: Sequence[str] = ()) -> Path:
    """A file of the folder that the processes of a session share; made if it is not there."""
    folder = Path(os.environ["RENAISSANCE_TESTS_FOLDER"], "emulation")
    folder.mkdir(exist_ok=True)
    made = folder / name
    if not made.exists():
        handle, part = tempfile.mkstemp(dir=folder)
        os.close(handle)
        command = [str(COMPILER), *first, *FLAGS, *arguments, "-o", part]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            raise AssertionError(error.stderr.decode()[-3000:]) from error
        os.replace(part, made)
    return made


def emulate(launch: PlannedLaunch, record: str, layout: str, fields: Sequence[Any]) -> None:
    """Run a launch; arrays among the fields are read and written where they lie.

    Args:
        launch: Kernel and grid.
        record: Name of its record in ``csrc/operations.h``.
        layout: The record's fields as :mod:`struct` letters, P for pointers.
        fields: Their values; an array or None for a pointer.
    """
    library = _built(launch.kernel, record)
    values = [_address(v) if letter == "P" else v for letter, v in zip(layout, fields, strict=True)]
    packed = struct.pack("@" + layout + "0q", *values)
    assert len(packed) == library.record_bytes(), "the layout is not the record's"
    grid = (ctypes.c_uint * 3)(*launch.grid)
    library.emulate(packed, grid, ctypes.c_uint(launch.threads))


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None else array.ctypes.data
