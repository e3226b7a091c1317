"""The native side of the data room: handles on plans, normalisers and worker pools, through ctypes.

Without the library everything works by way of numpy, with the same bytes and less speed.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from renaissance.core.errors import NativeError, check_int
from renaissance.data.chain import Chain
from renaissance.data.normalization import Normalization
from renaissance.runtime import library

VERSION = 2
MOST_WORKERS = 4096
CACHE_BYTES = 8 << 20
"""Batches beyond this are written around the cache."""
INSTRUCTION_SETS = ("scalar", "avx2", "avx512")

_POINTER = ctypes.c_void_p
_I32, _I64 = ctypes.c_int32, ctypes.c_int64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "best_isa": (_I32, []),
    "plan_new": (_POINTER, [_POINTER, _I64, ctypes.c_char_p, _I64]),
    "plan_free": (None, [_POINTER]),
    "normalizer_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _I32, _I32, _I32, _I32]),
    "normalizer_free": (None, [_POINTER]),
    "normalizer_isa": (_I32, [_POINTER]),
    "pool_new": (_POINTER, [_I32, _POINTER, _I32]),
    "pool_free": (None, [_POINTER]),
    "normalize": (None, [_POINTER, _POINTER, *[_I32] * 8, _POINTER]),
    "batch": (
        _I32,
        [
            *[_POINTER] * 5,
            *(_I64, _POINTER, _I64),
            *(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32),
            *[_POINTER] * 3,
        ],
    ),
}


@cache
def functions() -> dict[str, Any] | None:
    """The library's data functions by name, or None if it is missing or of another version."""
    if not library.status().loaded:
        return None
    loaded = library.load()
    if not hasattr(loaded, "rn_data_version") or loaded.rn_data_version() != VERSION:
        return None
    found = {}
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, f"rn_data_{name}")
        function.restype, function.argtypes = result, arguments
        found[name] = function
    return found


def is_available() -> bool:
    """Whether the native workers can be used."""
    return functions() is not None


def required() -> dict[str, Any]:
    """The functions.

    Raises:
        NativeError: The library is missing or of another version.
    """
    found = functions()
    if found is None:
        raise NativeError(f"the data room's native functions are not available: {problem()}")
    return found


def problem() -> str:
    """Why the functions are missing, for a message; empty if they are there."""
    if functions() is not None:
        return ""
    state = library.status()
    if not state.loaded:
        return state.message
    version = getattr(library.load(), "rn_data_version", None)
    held = "none" if version is None else f"version {version()}"
    return f"{state.path} holds {held} of them, expected version {VERSION}; install again"


def processors() -> tuple[int, ...]:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def address(array: np.ndarray | None) -> int | None:
    """Where an array's first element lies."""
    return None if array is None else array.ctypes.data


def free_with(owner: object, free: Any, handle: int) -> weakref.finalize[Any, Any]:
    """Free a handle together with its owner; not at exit, when threads may still be using it."""
    finalizer = weakref.finalize(owner, free, handle)
    finalizer.atexit = False
    return finalizer


class Plan:
    """A chain inside the library."""

    def __init__(self, chain: Chain) -> None:
        call, words = required(), chain.words()
        message = ctypes.create_string_buffer(256)
        self.handle = call["plan_new"](address(words), len(words), message, 256)
        if not self.handle:
            raise NativeError(f"the native library refuses the chain: {message.value.decode()}")
        self.chain = chain
        free_with(self, call["plan_free"], self.handle)


class Normalizer:
    """A normalisation table inside the library: the fused pass from uint8 to float."""

    def __init__(
        self,
        normalization: Normalization,
        channels: int,
        dtype: np.dtype,
        out_channels: int | None = None,
        instruction_set: str = "avx512",
    ) -> None:
        """Build the table.

        Args:
            normalization: Mean and standard deviation.
            channels: Of the pictures.
            dtype: float32 or float16.
            out_channels: Of the result; those beyond the pictures' are 0.
            instruction_set: The most that may be used; fewer where the processor has less.
        """
        call = required()
        self.table = normalization.table(channels, dtype)
        self.dtype = np.dtype(dtype)
        self.channels = channels
        self.out_channels = channels if out_channels is None else out_channels
        scales, biases = normalization.affine(channels)
        self.handle = call["normalizer_new"](
            address(self.table),
            address(scales),
            address(biases),
            channels,
            self.out_channels,
            int(self.dtype == np.float16),
            INSTRUCTION_SETS.index(instruction_set),
        )
        if not self.handle:
            raise NativeError("the native library cannot make a normalisation table")
        free_with(self, call["normalizer_free"], self.handle)

    @property
    def instruction_set(self) -> str:
        """What runs: "scalar" also where vector arithmetic would not give the table's bits."""
        return INSTRUCTION_SETS[required()["normalizer_isa"](self.handle)]

    def run(
        self,
        image: np.ndarray,
        out: np.ndarray,
        flip: bool = False,
        rectangle: tuple[int, int, int, int] = (0, 0, 0, 0),
        stream: bool = False,
    ) -> None:
        """Normalise one picture [h, w, channels] into ``out`` [h, w, out_channels].

        ``rectangle`` is (top, left, height, width), after the flip; height 0 erases nothing.
        ``stream`` writes around the cache, which pays where the whole batch is larger than it.
        """
        h, w, c = image.shape
        assert image.dtype == np.uint8 and image.flags.c_contiguous and c == self.channels
        assert out.shape == (h, w, self.out_channels) and out.dtype == self.dtype
        assert out.flags.c_contiguous
        required()["normalize"](
            self.handle, address(image), h, w, int(flip), *rectangle, int(stream), address(out)
        )


class Pool:
    """Native workers, each a thread that waits between batches; the caller is the first of them."""

    def __init__(self, workers: int, bind_to: Sequence[int] = ()) -> None:
        """Start them.

        Args:
            workers: 1 or more; 1 starts no thread.
            bind_to: Processors the workers are bound to in turn; empty: wherever they like.
        """
        call = required()
        self.workers = check_int("workers", workers, 1, MOST_WORKERS)
        chosen = np.array(bind_to, np.int32)
        self.handle = call["pool_new"](self.workers, address(chosen), len(chosen))
        if not self.handle:
            raise NativeError(f"the system refuses to start {self.workers} threads")
        self._finalizer = free_with(self, call["pool_free"], self.handle)
        self._busy = threading.Lock()

    def close(self) -> None:
        """Stop the threads, after a batch in progress; further calls do nothing."""
        with self._busy:
            self._finalizer()

    def fill(
        self,
        plan: Plan,
        normalizer: Normalizer | None,
        images: np.ndarray,
        labels: np.ndarray,
        ids: np.ndarray,
        *,
        seed: int,
        epoch: int,
        out: np.ndarray,
        out_labels: np.ndarray,
        delay_microseconds: int = 0,
    ) -> None:
        """Prepare one batch.

        Args:
            plan: The chain.
            normalizer: None leaves uint8, neither normalised nor erased.
            images: uint8 [n, h, w, c], all samples.
            labels: int32 [n].
            ids: Samples of this batch, int64 [count].
            seed: 64-bit seed.
            epoch: 32-bit epoch.
            out: [count, h', w', c'], written.
            out_labels: int32 [count], written.
            delay_microseconds: For tests: the most that workers pause before a sample.

        Raises:
            IndexError: An id is out of range; nothing is written.
            NativeError: The pool is closed.
        """
        h, w, c = plan.chain.after
        channels = c if normalizer is None else normalizer.out_channels
        dtype = np.dtype(np.uint8) if normalizer is None else normalizer.dtype
        assert images.shape[1:] == plan.chain.before and images.dtype == np.uint8
        assert out.shape == (len(ids), h, w, channels) and out.dtype == dtype
        assert labels.dtype == out_labels.dtype == np.int32 and out_labels.shape == ids.shape
        assert ids.dtype == np.int64
        for array in (images, labels, ids, out, out_labels):
            assert array.flags.c_contiguous
        offender = ctypes.c_int64()
        with self._busy:  # another thread must not close the pool meanwhile
            if not self._finalizer.alive:
                raise NativeError("the pool of workers is closed")
            status = required()["batch"](
                self.handle,
                plan.handle,
                None if normalizer is None else normalizer.handle,
                address(images),
                address(labels),
                len(images),
                address(ids),
                len(ids),
                seed,
                epoch,
                delay_microseconds,
                address(out),
                address(out_labels),
                ctypes.byref(offender),
            )
        if status:
            bad = int(ids[offender.value])
            raise IndexError(
                f"sample id {bad} at position {offender.value} of {len(images)} samples"
            )
