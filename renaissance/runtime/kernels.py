"""CUDA kernels: source in the package, machine code made for the device at hand, kept on disk.

A kernel is specialised with constants of the plan
(:class:`~renaissance.lowering.calls.targets.Kernel`). It compiles without a device; loading it
needs one.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from renaissance.core.errors import NativeError, fail
from renaissance.lowering.calls.targets import Kernel
from renaissance.runtime import library, nvrtc
from renaissance.runtime.compile_cache import CompileCache, key_of

CSRC = Path(__file__).parent / "csrc"
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)a?")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread block of a kernel takes, as the assembler reports it.

    Attributes:
        registers: Registers of a thread.
        shared_bytes: Static shared memory of a block.
        stack_bytes: Stack frame of a thread.
        spill_bytes: Bytes a thread spills to and reloads from local memory.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of a kernel.

    Attributes:
        kernel: What was compiled.
        architecture: For which device, such as ``"sm_90a"``.
        number: What the native library knows it by, once loaded.
        cubin: The machine code.
        resources: What it takes; None where the compiler did not say (it may have taken the code
            from a cache of its own).
    """

    kernel: Kernel
    architecture: str
    number: int
    cubin: bytes
    resources: Resources | None


class KernelCompiler:
    """Compiles kernels for one architecture.

    Args:
        architecture: ``"sm_80"``, ``"sm_89"``, ``"sm_90a"``...
        cache: Where machine code is kept; default the user's cache folder.
        compiler: NVRTC; default the one found.

    Raises:
        NativeError: there is no NVRTC.
        ValueError: the architecture is not of that form, or older than sm_80.
    """

    def __init__(
        self,
        architecture: str,
        cache: CompileCache | None = None,
        compiler: nvrtc.Nvrtc | None = None,
    ):
        match = _ARCHITECTURE.fullmatch(architecture)
        if match is None or int(match[1]) < 8:
            fail(ValueError, "architecture", architecture, "sm_80 or later, such as sm_90a")
        self.architecture = architecture
        self.cache = CompileCache() if cache is None else cache
        self.compiler = nvrtc.find() if compiler is None else compiler
        self._held: dict[str, bytes] = {}

    def compile(self, kernel: Kernel) -> CompiledKernel:
        """Machine code of a kernel, from the cache if it is there.

        Raises:
            NativeError: it does not compile, or is made for another architecture.
        """
        if kernel.architecture not in ("", self.architecture):
            raise NativeError(
                f"{kernel.name} is made for {kernel.architecture} only, not for {self.architecture}"
            )
        sources = sources_of(kernel.source)
        options = self._options(kernel)
        version = "{}.{}".format(*self.compiler.version)
        texts = [part for pair in sources.items() for part in pair]
        key = key_of("kernels", version, *options, *texts)
        content = self._held.get(key) or self.cache.get(key)
        if content is None:
            content = self._build(kernel, sources, options)
            self.cache.put(key, content)
        self._held[key] = content
        size = int.from_bytes(content[:4], "little")
        log, cubin = content[4 : 4 + size].decode(), content[4 + size :]
        resources = resources_of(log, kernel.name)
        name = bytes.fromhex(key_of(key, kernel.name)[:16])
        number = int.from_bytes(name, "little", signed=True)
        return CompiledKernel(kernel, self.architecture, number, cubin, resources)

    def _options(self, kernel: Kernel) -> list[str]:
        constants = [f"-D{name}={value}" for name, value in kernel.constants]
        return [
            f"--gpu-architecture={self.architecture}",
            "--std=c++17",
            "--device-as-default-execution-space",
            "--ptxas-options=-v",
            *constants,
        ]

    def _build(self, kernel: Kernel, sources: dict[str, str], options: list[str]) -> bytes:
        """The compiler's log and the machine code of all kernels of a source, as one entry."""
        headers = {name: text for name, text in sources.items() if name != kernel.source}
        source = sources[kernel.source]
        cubin, log = self.compiler.compile(kernel.source, source, headers, options)
        report = log.encode()
        return len(report).to_bytes(4, "little") + report + cubin


def architecture_of(compute_capability: str) -> str:
    """The architecture of a device: ``"9.0"`` gives ``"sm_90a"``, ``"8.9"`` gives ``"sm_89"``."""
    major, minor = (int(part) for part in str(compute_capability).split("."))
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def sources_of(name: str) -> dict[str, str]:
    """A kernel's source and all it includes, by the name each is included with.

    Raises:
        NativeError: a file is missing from the package.
    """
    texts: dict[str, str] = {}
    wanted = [name]
    while wanted:
        current = wanted.pop()
        if current in texts:
            continue
        places = [folder / current for folder in (CSRC / "kernels", CSRC)]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise NativeError(f"kernel source {current} (for {name}) is missing from {CSRC}")
        texts[current] = path.read_text()
        wanted += _INCLUDE.findall(texts[current])
    return texts


def resources_of(log: str, name: str) -> Resources | None:
    """Read the assembler's report about one kernel; None if it does not mention it."""
    _, found, rest = log.partition(f"Compiling entry function '{name}'")
    if not found:
        return None
    report = rest.split("Compiling entry function", 1)[0]

    def number(pattern: str) -> int:
        match = re.search(pattern, report)
        return int(match[1]) if match else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        shared_bytes=number(r"(\d+) bytes smem"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        spill_bytes=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
    )


@dataclass(frozen=True, slots=True)
class Residency:
    """What a launch takes of a device.

    Attributes:
        threads: Threads of a block.
        shared_bytes: The most dynamic shared memory of a block.
        cluster: Blocks of a cluster.
        clusters: Clusters that must run at once; 0 where none waits for another.
    """

    threads: int
    shared_bytes: int = 0
    cluster: int = 1
    clusters: int = 0


def load(compiled: Iterable[tuple[CompiledKernel, Residency]], device: int) -> None:
    """Load kernels onto a device, so that no launch has to.

    Args:
        compiled: Kernels, each with what its launches take.
        device: The device's ordinal in this process.

    Raises:
        NativeError: there is no driver or no such device, or it refuses a kernel.
    """
    native = library.load()
    for kernel, takes in compiled:
        message = ctypes.create_string_buffer(512)
        numbers = (takes.threads, takes.shared_bytes, takes.cluster, takes.clusters, device)
        failed = native.rn_kernel_load(
            ctypes.c_int64(kernel.number),
            kernel.cubin,
            kernel.kernel.name.encode(),
            *(ctypes.c_int(number) for number in numbers),
            message,
            ctypes.c_int(len(message)),
        )
        if failed:
            raise NativeError(
                f"kernel {kernel.kernel.name} for {kernel.architecture}: {message.value.decode()}"
            )
