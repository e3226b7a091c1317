"""Host memory for batches."""

from __future__ import annotations

import numpy as np

PAGE = 4096


def paged(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that begins on a page.

    Copies to a device run best from there, and vector code can write around the cache.
    """
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + PAGE, np.uint8)
    first = -raw.ctypes.data % PAGE
    return raw[first : first + size].view(dtype).reshape(shape)
