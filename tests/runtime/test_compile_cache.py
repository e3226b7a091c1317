"""The cache on disk: absent, damaged, concurrent, not writable; and kernels kept in it."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from renaissance.core.errors import NativeError
from renaissance.lowering.calls.targets import Kernel
from renaissance.runtime import kernels
from renaissance.runtime.compile_cache import CompileCache, default_folder, key_of
from renaissance.runtime.kernels import KernelCompiler, architecture_of, resources_of, sources_of

KEY = key_of("some", b"thing")
LOG = """ptxas info    : Compiling entry function 'clear_kernel' for 'sm_90a'
ptxas info    : Function properties for clear_kernel
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 18 registers, used 1 barriers, 128 bytes smem, 8 bytes cumulative stack size
ptxas info    : Compiling entry function 'copy_kernel' for 'sm_90a'
ptxas info    : Used 26 registers"""


class CountingCompiler:
    """Stands in for NVRTC: remembers what it was asked for."""

    version = (13, 0)

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def compile(self, name: str, source: str, headers: dict, options: list) -> tuple[bytes, str]:
        self.calls.append((name, options))
        return b"code", LOG


def compiler_with(folder: Path, nvrtc: CountingCompiler, arch: str = "sm_90a") -> KernelCompiler:
    return KernelCompiler(arch, CompileCache(folder), nvrtc)  # type: ignore[arg-type]


def test_parts_of_a_key_never_run_into_each_other() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")


def test_what_was_put_is_there(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    cache.put(KEY, b"newer")
    assert CompileCache(tmp_path).get(KEY) == b"newer"


@pytest.mark.parametrize("damage", [b"", b"RNCACHE1", b"garbage" * 20])
def test_a_damaged_entry_is_as_good_as_absent_and_can_be_replaced(
    tmp_path: Path, damage: bytes
) -> None:
    cache = CompileCache(tmp_path)
    cache.put(KEY, b"content")
    cache.path(KEY).write_bytes(damage)
    assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"


def test_a_single_flipped_bit_is_noticed(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.put(KEY, bytes(1000))
    data = bytearray(cache.path(KEY).read_bytes())
    data[-500] ^= 4
    cache.path(KEY).write_bytes(data)
    assert cache.get(KEY) is None


def test_a_folder_that_cannot_be_written_to_caches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    cache = CompileCache(file)
    cache.put(KEY, b"content")
    assert cache.get(KEY) is None


def _write_and_read(folder: str, number: int) -> bool:
    cache = CompileCache(Path(folder))
    content = bytes([number]) * 50_000
    for _ in range(30):
        cache.put(KEY, content)
        found = cache.get(KEY)
        if found is None or len(set(found)) != 1 or len(found) != 50_000:
            return False
    return True


def test_processes_that_write_at_once_leave_a_whole_entry(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        assert all(pool.starmap(_write_and_read, [(str(tmp_path), n) for n in range(4)]))
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [KEY], "no half-written file stays behind"


def test_the_users_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RENAISSANCE_CACHE", "/some/where")
    assert default_folder() == Path("/some/where")


def test_a_kernel_is_compiled_once_for_all_functions_of_its_source(tmp_path: Path) -> None:
    nvrtc = CountingCompiler()
    compiler = compiler_with(tmp_path, nvrtc)
    clear = compiler.compile(Kernel("region.cu", "clear_kernel"))
    copy = compiler.compile(Kernel("region.cu", "copy_kernel"))
    again = compiler_with(tmp_path, nvrtc).compile(Kernel("region.cu", "clear_kernel"))
    assert len(nvrtc.calls) == 1
    assert clear.number == again.number != copy.number
    assert (clear.resources.registers, copy.resources.registers) == (18, 26)


@pytest.mark.parametrize("change", ["constant", "architecture", "compiler", "header"])
def test_whatever_changes_the_code_misses_the_cache(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvrtc = CountingCompiler()
    kernel = Kernel("region.cu", "clear_kernel")
    before = compiler_with(tmp_path, nvrtc).compile(kernel)
    architecture = "sm_90a"
    if change == "constant":
        kernel = Kernel("region.cu", "clear_kernel", (("RN_K", 3),))
    elif change == "architecture":
        architecture = "sm_80"
    elif change == "compiler":
        nvrtc.version = (13, 1)
    else:
        monkeypatch.setattr(
            kernels, "sources_of", lambda name: {**sources_of(name), "device.cuh": "// new"}
        )
    after = compiler_with(tmp_path, nvrtc, architecture).compile(kernel)
    assert len(nvrtc.calls) == 2
    assert before.number != after.number


def test_a_kernels_sources_hold_all_it_includes() -> None:
    assert set(sources_of("fc_backward.cu")) == {
        "fc_backward.cu", "fc_tile.cuh", "tile.cuh", "simt.cuh", "device.cuh", "primitives.cuh",
        "activation.h", "operations.h", "update_rules.h",
    }  # fmt: skip
    with pytest.raises(NativeError, match="nowhere.cu"):
        sources_of("nowhere.cu")


def test_the_assemblers_report_is_read_per_kernel() -> None:
    clear, copy = resources_of(LOG, "clear_kernel"), resources_of(LOG, "copy_kernel")
    assert clear is not None and copy is not None
    assert (clear.registers, clear.shared_bytes, clear.stack_bytes) == (18, 128, 8)
    assert (clear.spill_bytes, copy.spill_bytes) == (16, 0)
    assert resources_of(LOG, "cast_kernel") is None, "the compiler did not say"


def test_architectures() -> None:
    assert [architecture_of(c) for c in ("9.0", "8.9", "8.0")] == ["sm_90a", "sm_89", "sm_80"]
    for wrong in ("sm_75", "90", "compute_90"):
        with pytest.raises(ValueError, match=r"sm_80 or later"):
            KernelCompiler(wrong, CompileCache(Path(os.devnull)), CountingCompiler())  # type: ignore
