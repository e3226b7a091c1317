"""A kernel launch before anything is compiled: source, constants, grid, threads, shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Kernel
from renaissance.lowering.launches.tiles import ceil_div

THREADS = 256
MOST_BLOCKS = 1024
"""Blocks of an element-wise kernel: enough to fill any device, each thread then loops."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A kernel and how it is launched, before it is compiled.

    Attributes:
        kernel: Source, name and constants.
        grid: Blocks in x, y and z.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory of a block.
        cluster: Blocks of a cluster; above 1, all blocks of the grid must run at once.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0
    cluster: int = 1


Attributes = Mapping[str, Any]
Plan = Callable[[InPlaceCall], list[PlannedLaunch]]


def kernel(source: str, name: str, **constants: int) -> Kernel:
    """A kernel with its constants as macros: ``half=1`` defines ``RN_HALF``."""
    macros = tuple(sorted((f"RN_{key.upper()}", int(value)) for key, value in constants.items()))
    return Kernel(source, f"{name}_kernel", macros)


def spread(count: int, lanes: int = 1, most: int = MOST_BLOCKS) -> tuple[int, int, int]:
    """A grid for ``count`` elements, ``lanes`` of them a thread."""
    return (max(1, min(most, ceil_div(count, THREADS * lanes))), 1, 1)
