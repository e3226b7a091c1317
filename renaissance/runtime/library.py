"""The native library: find it, load it, check it, register its custom calls with JAX.

:func:`status` never raises: it tells in one sentence what is there or what is missing. Whoever
cannot go on without the library calls :func:`load` and gets an error with that sentence.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from renaissance.core.errors import NativeError
from renaissance.lowering.calls.targets import TARGETS

FILE_NAME = "librenaissance_native.so"
PATH_VARIABLE = "RENAISSANCE_NATIVE_LIBRARY"
_REBUILD = "install again with a C++17 compiler (such as g++) and jaxlib present"
_register_lock = threading.Lock()
_registered: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of the native library in this process.

    Attributes:
        loaded: Whether its plain functions (random numbers, checksums, data) can be called.
        custom_calls: Whether its custom calls may be registered with the running jaxlib.
        path: Where it lies, None if it was not found.
        message: One sentence for a person.
    """

    loaded: bool
    custom_calls: bool
    path: Path | None
    message: str


def search_path() -> list[Path]:
    """Folders where the library may lie, most wanted first.

    An editable install leaves the sources in place and puts the library beside the installed
    package: both are on the package's ``__path__``.
    """
    import renaissance.runtime

    return [Path(folder) for folder in renaissance.runtime.__path__]


def find() -> Path | None:
    """Where the library lies: ``RENAISSANCE_NATIVE_LIBRARY`` if set, else beside the package."""
    chosen = os.environ.get(PATH_VARIABLE)
    if chosen:
        return Path(chosen)
    candidates = [folder / FILE_NAME for folder in search_path()]
    return next((path for path in candidates if path.is_file()), None)


@functools.cache
def _open() -> tuple[ctypes.CDLL | None, Status]:
    path = find()
    if path is None:
        return None, Status(False, False, None, f"no native library: {_why_missing()}; {_REBUILD}")
    try:
        library = ctypes.CDLL(str(path))
        library.rn_version.restype = ctypes.c_char_p
        version = library.rn_version().decode()
    except (OSError, AttributeError) as error:
        return None, Status(False, False, path, f"{path} cannot be loaded: {error}; {_REBUILD}")
    problem = _custom_call_problem(library)
    if problem is not None:
        return library, Status(True, False, path, f"{path}: {problem}; {_REBUILD}")
    return library, Status(True, True, path, f"native library {version} at {path}")


def _why_missing() -> str:
    for folder in search_path():
        record = folder / "native_build.json"
        if record.is_file():
            note = json.loads(record.read_text()).get("note")
            return note or f"{FILE_NAME} was built but is gone from {folder}"
    return "the package was not installed, or was installed without building it"


def _custom_call_problem(library: ctypes.CDLL) -> str | None:
    if not hasattr(library, "rn_ffi_api_major"):
        return f"it has no custom calls, because {_why_missing()}"
    built = (library.rn_ffi_api_major(), library.rn_ffi_api_minor())
    running = running_ffi_version()
    # A library newer than jaxlib must never be registered: it would break the whole backend.
    if built[0] != running[0] or built[1] > running[1]:
        return (
            f"it was built for XLA FFI {built[0]}.{built[1]}, "
            f"but the running jaxlib offers {running[0]}.{running[1]}"
        )
    held, wanted = set(targets(library)), {target.name for target in TARGETS}
    if held != wanted:
        differing = ", ".join(sorted(held ^ wanted))
        return f"it is of another version than this package (custom calls differ: {differing})"
    return None


def running_ffi_version() -> tuple[int, int]:
    """Version of the XLA FFI that the installed jaxlib offers, read from the headers it carries."""
    import jax.ffi

    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text()
    numbers = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in numbers:
        raise NativeError(f"{header} states no XLA FFI version")
    major, minor = (int(number.group(1)) for number in numbers if number)
    return major, minor


def targets(library: ctypes.CDLL) -> dict[str, dict[str, int]]:
    """The library's own table: name → platform → address of the handler (absent where null)."""
    library.rn_target_name.restype = ctypes.c_char_p
    table: dict[str, dict[str, int]] = {}
    for index in range(library.rn_target_count()):
        handlers = {}
        for platform, getter in (("cpu", library.rn_target_host), ("CUDA", library.rn_target_cuda)):
            getter.restype = ctypes.c_void_p
            address = getter(index)
            if address:
                handlers[platform] = int(address)
        table[library.rn_target_name(index).decode()] = handlers
    return table


def status() -> Status:
    """What is there, or what is missing; loads the library on the first call."""
    return _open()[1]


def load() -> ctypes.CDLL:
    """The library, for its plain functions.

    Raises:
        NativeError: it is missing or cannot be loaded; the message says how to get it.
    """
    library, state = _open()
    if library is None:
        raise NativeError(state.message)
    return library


def register(platform: str = "cpu") -> None:
    """Register every custom call for a platform, ``"cpu"`` or ``"CUDA"``. Repeated calls are free.

    Raises:
        NativeError: there is no library, or it does not fit the running jaxlib.
    """
    import jax.ffi

    library, state = _open()
    if library is None or not state.custom_calls:
        raise NativeError(state.message)
    with _register_lock:
        for name, handlers in targets(library).items():
            if platform not in handlers or (name, platform) in _registered:
                continue
            capsule = jax.ffi.pycapsule(handlers[platform])
            jax.ffi.register_ffi_target(name, capsule, platform=platform, api_version=1)
            _registered.add((name, platform))
