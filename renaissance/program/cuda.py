"""What a program launches on a CUDA device: kernels compiled and loaded, library plans built.

All of it happens while the program is compiled; a step only enqueues.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax

from renaissance.core.errors import NativeError, PlanError, fail
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Convolution, Launch
from renaissance.lowering.launches.conv3x3 import ARCHITECTURE
from renaissance.lowering.launches.convolutions import convolution_of, launches_behind
from renaissance.lowering.launches.planned import PlannedLaunch
from renaissance.lowering.launches.table import launches_of
from renaissance.runtime import library
from renaissance.runtime.compile_cache import CompileCache
from renaissance.runtime.cudnn import ConvolutionPlan, Convolutions
from renaissance.runtime.kernels import KernelCompiler, Residency, architecture_of, load

OLDEST_ARCHITECTURE = 80
SHARED_KIB = {"8.0": 163, "8.7": 163, "9.0": 227, "10.0": 227}
"""Shared memory of a block by compute capability, in KiB; that of all others is 99."""


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
        self.shared_limit = SHARED_KIB.get(capability, 99) << 10
        self.has_warpgroups = architecture_of(capability) == ARCHITECTURE
        self.compiler = KernelCompiler(architecture_of(capability), cache)
        self.device_name = str(device.device_kind)
        self._loaded: dict[PlannedLaunch, Launch] = {}
        self._convolutions: Convolutions | None = None
        self._opening = threading.Lock()

    def __call__(self, call: InPlaceCall) -> Sequence[Launch]:
        """The launches of a call, their kernels on the device.

        Raises:
            NativeError: a kernel does not compile or load.
            PlanError: there is no CUDA kernel for the call, or no cuDNN that runs its convolution.
        """
        call = self._here(call)
        convolution = convolution_of(call)
        if convolution is not None:
            return self.by_library(call, convolution)
        return [self.launch(planned) for planned in launches_of(call)]

    def prepare(self, calls: Iterable[InPlaceCall]) -> None:
        """Compile what many calls launch side by side: the compilers work outside Python's lock.

        Raises:
            NativeError: a kernel does not compile.
            PlanError: there is no CUDA kernel for a call (known before anything is compiled), or
                no cuDNN that runs its convolution.
        """
        calls = [self._here(call) for call in calls]
        planned = {launch.kernel for call in calls for launch in launches_of(call)}
        convolutions = {c: call for call in calls if (c := convolution_of(call)) is not None}
        with ThreadPoolExecutor() as pool:
            compiled = pool.map(self.compiler.compile, planned)
            built = pool.map(self.by_library, convolutions.values(), convolutions)
            list(compiled), list(built)

    def _here(self, call: InPlaceCall) -> InPlaceCall:
        """The call with what its plan has to know of this device."""
        known = {"shared_limit": self.shared_limit, "warpgroups": self.has_warpgroups}
        return replace(call, attributes={**call.attributes, **known})

    def by_library(self, call: InPlaceCall, convolution: Convolution) -> list[Launch]:
        """The launches of a convolution by cuDNN.

        Args:
            call: Whose launches.
            convolution: What it computes.

        Raises:
            PlanError: there is no cuDNN, or none of its engines will do.
        """
        plan = self.convolve(convolution, str(call))
        behind = launches_behind(call, summed=int(plan.summed))
        return [plan.launch, *(self.launch(planned) for planned in behind)]

    def convolve(self, convolution: Convolution, where: str) -> ConvolutionPlan:
        """The plan of a convolution by cuDNN.

        Args:
            convolution: What to compute.
            where: The call it is for, for messages.

        Raises:
            PlanError: there is no cuDNN, or none of its engines will do.
        """
        try:
            with self._opening:
                if self._convolutions is None:
                    self._convolutions = Convolutions(self.ordinal, self.device_name)
            return self._convolutions.plan(convolution)
        except NativeError as reason:
            raise PlanError(f"{where} cannot run on CUDA: {reason}; use lowering='xla'") from reason

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
