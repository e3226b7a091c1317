"""Compiles a planned launch for the processor and runs it on arrays."""

from __future__ import annotations

import ctypes
import functools
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


@functools.cache
def _built(kernel: Kernel, record: str) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="emulation-"))
    constants = [f"-D{name}={value}" for name, value in kernel.constants]
    chosen = [
        f'-DRN_SOURCE="{kernel.source}"',
        f"-DRN_KERNEL={kernel.name}",
        f"-DRN_RECORD={record}",
    ]
    includes = [f"-I{path}" for path in (HERE, CSRC, CSRC / "kernels")]
    # without unique symbols: shared memory of another size in another kernel is another array
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-gnu-unique"]
    flags += ["-ffp-contract=off", "-DRN_EMULATED"]
    command = [str(COMPILER), *flags, *includes, *constants, *chosen, str(HERE / "emulate.cc")]
    try:
        subprocess.run([*command, "-o", str(folder / "kernel.so")], check=True, capture_output=True)
        return ctypes.CDLL(str(folder / "kernel.so"))
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr.decode()[-3000:]) from error
    finally:
        shutil.rmtree(folder)


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
