"""NVRTC, the CUDA compiler as a library: found in the wheel JAX brings, opened at run time."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from renaissance.core.errors import NativeError

PATH_VARIABLE = "RENAISSANCE_NVRTC"


class Nvrtc:
    """An opened NVRTC.

    Args:
        path: The shared library.

    Raises:
        NativeError: it cannot be opened.
    """

    def __init__(self, path: str | Path):
        folder = Path(path).parent
        # The compiler opens its built-ins by name: they must be there already unless the loader
        # knows the folder.
        for builtins in sorted(folder.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise NativeError(f"NVRTC cannot be opened: {error}") from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "")
        self.path = str(path)
        self.version = (major.value, minor.value)

    def compile(
        self, name: str, source: str, headers: Mapping[str, str], options: Sequence[str]
    ) -> tuple[bytes, str]:
        """Compile to machine code of the architecture among the options.

        Args:
            name: Name of the source, for messages.
            source: CUDA C++.
            headers: Text by the name it is included with.
            options: Compiler options.

        Returns:
            The cubin, and the compiler's log.

        Raises:
            NativeError: it does not compile; the message holds the log.
        """
        library, program = self._library, ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(key.encode() for key in headers))
        made = library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names
        )
        self._check(made, name)
        try:
            flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = library.nvrtcCompileProgram(program, len(options), flags)
            log = self._text(program, "ProgramLog")
            if code:
                raise NativeError(f"{name} does not compile for {' '.join(options)}:\n{log}")
            return self._bytes(program, "CUBIN"), log
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        get_size = getattr(self._library, f"nvrtcGet{what}Size")
        self._check(get_size(program, ctypes.byref(size)), what)
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer), what)
        return buffer.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0").decode(errors="replace").strip()

    def _check(self, code: int, what: str) -> None:
        if code:
            text = self._library.nvrtcGetErrorString(code).decode()
            raise NativeError(f"NVRTC failed on {what or 'start'}: {text}")


def candidates() -> list[Path]:
    """NVRTC libraries of installed wheels, the CUDA version that JAX's plugin uses first."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [
        path
        for folder in folders
        for path in Path(folder).glob("*/lib/libnvrtc.so.*")
        if re.fullmatch(r"libnvrtc\.so\.\d+", path.name)
    ]
    wanted = [v for v in (13, 12) if importlib.util.find_spec(f"jax_cuda{v}_plugin")]

    def rank(path: Path) -> tuple[bool, int]:
        version = int(path.name.rsplit(".", 1)[1])
        return version not in wanted, -version

    return sorted(found, key=rank)


@functools.cache
def find() -> Nvrtc:
    """NVRTC: ``RENAISSANCE_NVRTC`` if set, else of a wheel, else the system's.

    Raises:
        NativeError: there is none; the message says how to get it.
    """
    chosen = os.environ.get(PATH_VARIABLE)
    names = [chosen] if chosen else [*map(str, candidates()), "libnvrtc.so.13", "libnvrtc.so.12"]
    problems = []
    for name in names:
        try:
            return Nvrtc(name)
        except NativeError as error:
            problems.append(str(error))
    raise NativeError(
        f"no CUDA compiler: {problems[0]}; install jax[cuda13] or jax[cuda12], or set "
        f"{PATH_VARIABLE} to a libnvrtc.so"
    )
