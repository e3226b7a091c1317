"""``renaissance kernels``: kernels are planned without a device, and compile where NVRTC is."""

from __future__ import annotations

from pathlib import Path

import pytest

from renaissance.cli import main
from renaissance.cli.kernels import representative_launches
from renaissance.core.errors import NativeError
from renaissance.lowering.calls.targets import TARGETS
from renaissance.lowering.launches.table import PLANS
from renaissance.runtime import nvrtc
from renaissance.runtime.compile_cache import CompileCache
from renaissance.runtime.kernels import CSRC, KernelCompiler, sources_of


def test_every_target_of_cuda_has_launches() -> None:
    assert {target for target in TARGETS if target.cuda} <= set(PLANS)


def test_the_representative_kernels_cover_every_source_of_the_fused_lowering() -> None:
    kernels = [launch.kernel for launch in representative_launches()]
    covered = {kernel.source for kernel in kernels}
    sources = {path.name for path in (CSRC / "kernels").glob("*.cu")}
    assert sources == covered
    for kernel in kernels:
        assert f"{kernel.name}(" in sources_of(kernel.source)[kernel.source]


def test_without_nvrtc_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(nvrtc.PATH_VARIABLE, "/nowhere/libnvrtc.so")
    nvrtc.find.cache_clear()
    try:
        assert main(["kernels"]) == 2
    finally:
        nvrtc.find.cache_clear()
    assert "install jax[cuda13] or jax[cuda12]" in capsys.readouterr().err


def test_an_architecture_that_is_too_old_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'sm_70', expected sm_80 or later"):
        KernelCompiler("sm_70")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_kernels_compile_where_nvrtc_is_installed(architecture: str, tmp_path: Path) -> None:
    try:
        compiler = KernelCompiler(architecture, CompileCache(tmp_path))
    except NativeError as reason:
        pytest.skip(str(reason))
    chosen = {}
    for launch in representative_launches():
        if launch.kernel.architecture in ("", architecture):
            chosen.setdefault(launch.kernel.source, launch.kernel)
    for kernel in chosen.values():
        compiled = compiler.compile(kernel)
        assert compiled.cubin[:4] == b"\x7fELF"
