"""Contact sheets: what the transforms make of samples, at a glance."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from renaissance.core.errors import check_int
from renaissance.data.engine import make_engine
from renaissance.data.files import write_atomically
from renaissance.data.normalization import NO_NORM
from renaissance.data.preparation import Dataset, Preparation
from renaissance.data.transforms import Transform, check_chain

BORDER = 2
BACKGROUND = 128
SMALLEST_SIDE = 48


def contact_sheet(
    dataset: Dataset,
    transforms: Sequence[Transform],
    *,
    samples: int = 8,
    epochs: int = 12,
    seed: int = 0,
) -> np.ndarray:
    """Samples spread over a data set, as they are in several epochs.

    Args:
        dataset: Where they come from.
        transforms: Applied to them; erased pixels are black here.
        samples: Rows.
        epochs: Columns.
        seed: Of the random decisions.

    Returns:
        uint8 [height, width, 1 or 3]; small pictures are enlarged by a whole factor.
    """
    rows = min(check_int("samples", samples, 1), len(dataset))
    check_int("epochs", epochs, 1)
    ids = np.linspace(0, len(dataset) - 1, rows).astype(np.int64)
    preparation = Preparation(check_chain(transforms), NO_NORM, np.dtype(np.float32), seed=seed)
    engine = make_engine(dataset, preparation)
    try:
        pictures = np.empty((epochs, rows, *engine.after), np.float32)
        labels = np.empty(rows, np.int32)
        for epoch in range(epochs):
            engine.fill(ids, epoch, pictures[epoch], labels)
    finally:
        engine.close()
    values = np.rint(pictures[..., : 3 if engine.after[2] >= 3 else 1] * 255).astype(np.uint8)
    factor = max(1, -(-SMALLEST_SIDE // engine.after[0]))
    values = values.repeat(factor, axis=2).repeat(factor, axis=3)
    border = [(0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER), (0, 0)]
    framed = np.pad(values, border, constant_values=BACKGROUND)
    _, _, h, w, c = framed.shape
    return framed.transpose(1, 2, 0, 3, 4).reshape(rows * h, epochs * w, c)


def write_png(path: str | os.PathLike[str], image: np.ndarray) -> None:
    """Write uint8 [h, w, 1 or 3] as PNG (https://www.w3.org/TR/png), unfiltered."""
    h, w, c = image.shape
    lines = np.zeros((h, 1 + w * c), np.uint8)
    lines[:, 1:] = image.reshape(h, w * c)
    header = struct.pack(">IIBBBBB", w, h, 8, 0 if c == 1 else 2, 0, 0, 0)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    pieces = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes()))
    write_atomically(path, b"\x89PNG\r\n\x1a\n", *pieces, chunk(b"IEND", b""))
