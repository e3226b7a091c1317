"""Kernels of a program: planned and compiled once each, launched by their numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import renaissance as rn
from renaissance.core.errors import NativeError
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.calls.targets import Convolution, Launch
from renaissance.lowering.fused.passes import train_pass
from renaissance.program import cuda
from renaissance.program.cuda import CudaKernels
from renaissance.runtime import library, nvrtc
from renaissance.runtime.compile_cache import CompileCache
from renaissance.runtime.cudnn import ConvolutionPlan

DEVICE = SimpleNamespace(compute_capability="9.0", local_hardware_id=0, device_kind="H200")

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)


class Compiler:
    """Stands in for NVRTC."""

    version = (13, 0)

    def __init__(self) -> None:
        self.sources: list[str] = []

    def compile(self, name: str, source: str, headers: Any, options: Any) -> tuple[bytes, str]:
        self.sources.append(name)
        return b"code", ""


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    stand_in = Compiler()
    monkeypatch.setattr(nvrtc, "find", lambda: stand_in)
    monkeypatch.setattr(library, "register", lambda platform: None)
    return stand_in


def calls() -> tuple[Any, ...]:
    net = rn.seq(rn.flatten(), rn.fc(16), rn.relu(), rn.fc(10))
    program = rn.compile(net, (4, 4, 1), 8, amp=True, lowering="xla")
    return train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls


def test_every_kernel_is_compiled_once_before_and_loaded_while_tracing(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        cuda, "load", lambda compiled, device: loaded.extend(k.kernel.name for k, _ in compiled)
    )
    kernels = CudaKernels(DEVICE, CompileCache(tmp_path))
    step = calls()
    kernels.prepare(step)
    compiled = len(compiler.sources)
    numbers = [launch.key for call in step for launch in kernels(call)]
    assert len(compiler.sources) == compiled, "tracing compiles nothing"
    assert len(loaded) == len(set(numbers)) == len(numbers), "all kernels of this step differ"
    assert all(launch.threads % 32 == 0 for call in step for launch in kernels(call))
    assert len(loaded) == len(numbers), "nothing is loaded twice"


def test_a_device_that_is_too_old_is_refused(compiler: Compiler) -> None:
    old = SimpleNamespace(compute_capability="7.5", local_hardware_id=0)
    with pytest.raises(ValueError, match=r"'7.5', expected 8.0 or later"):
        CudaKernels(old)


def test_loading_without_a_driver_says_so(compiler: Compiler, tmp_path: Path) -> None:
    kernels = CudaKernels(DEVICE, CompileCache(tmp_path))
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a driver")
    with pytest.raises(NativeError, match=r"no CUDA driver: libcuda.so.1 cannot be opened"):
        kernels(calls()[0])


class Convolutions:
    """Stands in for cuDNN, which fuses statistics where it is told to."""

    fuses = True

    def __init__(self, *_: Any) -> None:
        self.asked: list[Convolution] = []

    def plan(self, convolution: Convolution) -> ConvolutionPlan:
        self.asked.append(convolution)
        summed = self.fuses and convolution.kind == "forward_statistics"
        return ConvolutionPlan(Launch(7, (0, 0, 0), 0), summed)


STEM = {"n": 2, "h": 8, "w": 8, "c": 4, "k": 8, "p": 4, "q": 4, "r": 3, "s": 3}
PLAIN = {**STEM, "c": 8}


@pytest.mark.parametrize(
    ("sizes", "fuses", "kernels"),
    [
        (PLAIN, True, ["batch_norm_finalise_kernel"]),
        (PLAIN, False, ["batch_norm_statistics_kernel", "batch_norm_finalise_kernel"]),
        (STEM, True, ["stem_conv_forward_kernel", "batch_norm_finalise_kernel"]),
    ],
)
def test_what_a_convolution_with_statistics_launches(
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sizes: dict[str, int],
    fuses: bool,
    kernels: list[str],
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        cuda, "load", lambda compiled, device: loaded.extend(k.kernel.name for k, _ in compiled)
    )
    monkeypatch.setattr(cuda, "Convolutions", Convolutions)
    monkeypatch.setattr(Convolutions, "fuses", fuses)
    window = {"stride": 2, "pad": 1, "groups": 1}
    more = {"type": 1, "y_type": 1, "workspace_bytes": 1 << 20, "partial_rows": 2}
    operands = (Argument("array"),) * 11
    call = InPlaceCall(targets.CONV_FORWARD_STATISTICS, operands, {**sizes, **window, **more})
    launches = CudaKernels(DEVICE, CompileCache(tmp_path))(call)
    by_library = [launch for launch in launches if launch.key == 7]
    assert [launch.grid for launch in by_library] == [(0, 0, 0)] * (sizes is PLAIN)
    assert loaded == kernels and len(launches) == len(by_library) + len(kernels)
