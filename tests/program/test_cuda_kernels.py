"""Kernels of a program: planned and compiled once each, launched by their numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import renaissance as rn
from renaissance.core.errors import NativeError
from renaissance.lowering.fused import train_pass
from renaissance.lowering.fused_nodes import Scene
from renaissance.program import cuda
from renaissance.program.cuda import CudaKernels
from renaissance.runtime import library, nvrtc
from renaissance.runtime.compile_cache import CompileCache

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
