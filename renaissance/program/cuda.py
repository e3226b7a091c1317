"""Kernels of a program on a CUDA device: compiled and loaded while the program is traced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from renaissance.core.errors import fail
from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import PlannedLaunch, launches_of
from renaissance.lowering.targets import Launch
from renaissance.runtime import library
from renaissance.runtime.compile_cache import CompileCache
from renaissance.runtime.kernels import KernelCompiler, Residency, architecture_of, load

OLDEST_ARCHITECTURE = 80


class CudaKernels:
    """Gives calls their loaded kernels on one device.

    Args:
        device: A CUDA device.
        cache: Where machine code is kept; default the user's cache folder.

    Raises:
        NativeError: the native library or NVRTC is missing.
        ValueError: the device is older than the kernels need.
    """

    def __init__(self, device: jax.Device, cache: CompileCache | None = None):
        capability = str(device.compute_capability)
        if int(capability.replace(".", "")) < OLDEST_ARCHITECTURE:
            fail(ValueError, f"compute capability of {device}", capability, "8.0 or later")
        library.register("CUDA")
        self.ordinal = int(device.local_hardware_id)
        self.compiler = KernelCompiler(architecture_of(capability), cache)
        self._loaded: dict[PlannedLaunch, Launch] = {}

    def __call__(self, call: InPlaceCall) -> Sequence[Launch]:
        """The launches of a call, their kernels on the device.

        Raises:
            NativeError: a kernel does not compile or load.
            PlanError: there is no CUDA kernel for the call.
        """
        return [self.launch(planned) for planned in launches_of(call)]

    def prepare(self, calls: Iterable[InPlaceCall]) -> None:
        """Compile the kernels of many calls side by side: the compiler works outside Python's lock.

        Raises:
            NativeError: a kernel does not compile.
            PlanError: there is no CUDA kernel for a call; known before anything is compiled.
        """
        planned = {launch.kernel for call in calls for launch in launches_of(call)}
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.compiler.compile, planned))

    def launch(self, planned: PlannedLaunch) -> Launch:
        """A planned launch with its kernel on the device."""
        if planned not in self._loaded:
            compiled = self.compiler.compile(planned.kernel)
            clusters = planned.grid[0] // planned.cluster if planned.cluster > 1 else 0
            takes = Residency(planned.threads, planned.shared_bytes, planned.cluster, clusters)
            load([(compiled, takes)], self.ordinal)
            self._loaded[planned] = Launch(
                compiled.number, planned.grid, planned.threads, planned.shared_bytes
            )
        return self._loaded[planned]
