"""Host memory for batches."""

from __future__ import annotations

import ctypes
import logging
import weakref

import numpy as np

from renaissance.runtime import library

PAGE = 4096

logger = logging.getLogger("renaissance")


def paged(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that begins on a page.

    Copies to a device run best from there, and vector code can write around the cache.
    """
    return _within(_pages(_bytes(shape, dtype))[0], shape, dtype)


def pinned(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, bool]:
    """The same with its pages locked in memory, where there is a CUDA device.

    A device reads such memory by itself, while anything else goes on; other memory is first copied
    into a place of the driver's by a processor. The lock ends with the array.

    Returns:
        The array, and whether it is locked: not where there is no driver, or it refuses.
    """
    size = _bytes(shape, dtype)
    pages, owner = _pages(size)
    problem = _pin(pages)
    if problem:
        logger.info("host memory for batches is not page-locked: %s", problem)
    else:
        finalizer = weakref.finalize(owner, _unpin, pages.ctypes.data)
        finalizer.atexit = False  # the process's end unlocks it; the driver may be gone by then
    return _within(pages, shape, dtype), not problem


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape)) * dtype.itemsize


def _pages(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole pages for so many bytes, and the array that owns them."""
    whole = -(-max(size, 1) // PAGE) * PAGE
    owner = np.empty(whole + PAGE, np.uint8)
    first = -owner.ctypes.data % PAGE
    return owner[first : first + whole], owner


def _within(pages: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return pages[: _bytes(shape, dtype)].view(dtype).reshape(shape)


def _pin(pages: np.ndarray) -> str:
    """Lock pages; empty, or why they are not."""
    state = library.status()
    if not state.loaded:
        return state.message
    return _called("rn_host_pin", ctypes.c_void_p(pages.ctypes.data), ctypes.c_int64(pages.nbytes))


def _unpin(address: int) -> None:
    problem = _called("rn_host_unpin", ctypes.c_void_p(address))
    if problem:
        logger.warning("host memory for batches stays page-locked: %s", problem)


def _called(name: str, *arguments: object) -> str:
    message = ctypes.create_string_buffer(256)
    function = getattr(library.load(), name)
    return message.value.decode() if function(*arguments, message, ctypes.c_int(256)) else ""
