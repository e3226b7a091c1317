"""The names of every custom call: what the lowering may emit and the native library must hold.

Nothing but names, so that a program can be lowered, read and tested where no library was built.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A custom call.

    Attributes:
        name: The name XLA knows it by.
        cuda: Whether there is a CUDA handler beside the host one.
    """

    name: str
    cuda: bool


PHILOX_UNIFORM = "rn_philox_uniform"

TARGETS: tuple[Target, ...] = (Target(PHILOX_UNIFORM, cuda=False),)
"""Every target of the native library, in no order that matters."""
