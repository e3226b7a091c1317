"""What a contestant is: something that takes one step to be checked, then many to be timed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from renaissance.compare.workload import Workload
from renaissance.core.errors import fail


@dataclass(frozen=True)
class FirstStep:
    """What the first step from the common weights gave.

    Attributes:
        loss: Mean over the batch.
        moments: First moments by tensor name: after one step they are the gradient, up to the
            factor and the weight decay that the rule puts into them, alike for all.
    """

    loss: float
    moments: dict[str, np.ndarray]


class Contestant(Protocol):
    """One way of running the workload."""

    def first_step(self) -> FirstStep:
        """Take the first step; compiles what has to be compiled."""
        ...

    def run(self, steps: int) -> None:
        """Take steps, and return when the device has finished them."""
        ...

    @property
    def steps_per_call(self) -> int:
        """Steps of one call; :meth:`run` takes a multiple of it."""
        ...

    def memory(self) -> dict[str, int]:
        """Bytes on the device: ``peak``, ``planned``, ``temp``, as far as known."""
        ...


FUSED = ("fused", "fused-loop")
OURS = (*FUSED, "xla", "xla-loop")
TORCH = ("torch", "torch-compile", "torch-graph")


def check_names(names: Sequence[str]) -> None:
    """Refuse unknown contestants and an empty list.

    Raises:
        ValueError: names the first unknown one and lists the known.
    """
    known = f"one of {', '.join(OURS + TORCH)}"
    if not names:
        fail(ValueError, "contestants", list(names), f"at least {known}")
    for name in names:
        if name not in OURS + TORCH:
            fail(ValueError, "contestant", name, known)


def with_ours(names: Sequence[str]) -> list[str]:
    """The names, each once, and on a CUDA device our fused lowering before them.

    On a processor the fused lowering runs plain loops that prove kernels right and compete with
    nothing; there it only runs where it is named.
    """
    fused = [] if any(name in FUSED for name in names) or not has_cuda_device() else ["fused"]
    return list(dict.fromkeys([*fused, *names]))


def has_cuda_device() -> bool:
    """Whether the driver is there and finds a device; asked without starting jax."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    is_ready = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return bool(is_ready and count.value > 0)


def make(name: str, workload: Workload) -> Contestant:
    """A contestant by name.

    Raises:
        ValueError: The name is unknown.
        ImportError: It needs a package that is not installed.
    """
    check_names([name])
    if name in OURS:
        from renaissance.compare.ours import ProgramContestant

        lowering, _, loop = name.partition("-")
        return ProgramContestant(workload, lowering, loop=bool(loop))
    from renaissance.compare.torch_step import TorchContestant

    return TorchContestant(workload, name.partition("-")[2] or "eager")
