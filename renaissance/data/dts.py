"""DTS for small pictures: a 256-byte header, all labels (uint8), all pictures (uint8 NHWC)."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np

from renaissance.core.errors import FormatError
from renaissance.data.dataset import ArrayDataset
from renaissance.data.dts_header import SMALL_HEADER, USED_BYTES, DtsHeader
from renaissance.data.files import (
    check_promise,
    open_maybe_gzip,
    read_payload,
    read_upto,
    write_atomically,
)

MOST_CLASSES = 256  # labels are one byte each
COLOURS = {1: "GRAY", 3: "RGB", 4: "RGBA"}


def write_dts(
    path: str | os.PathLike[str],
    dataset: ArrayDataset,
    *,
    is_training: bool,
    dataset_type: str = "",
) -> DtsHeader:
    """Write a data set as one DTS file.

    Args:
        path: The file; it appears whole or not at all.
        dataset: Pictures of 1, 3 or 4 channels, at most 256 classes.
        is_training: Marks the training split.
        dataset_type: Up to 8 characters; the data set's name in capitals unless given.

    Returns:
        The header written; its mean and std (first three channels) are measured here.

    Raises:
        FormatError: The data set does not fit the format.
    """
    n, (h, w, c) = len(dataset), dataset.image_shape
    if c not in COLOURS:
        raise FormatError(f"{path}: {c} channels, expected one of {sorted(COLOURS)}")
    if dataset.num_classes > MOST_CLASSES:
        raise FormatError(
            f"{path}: {dataset.num_classes} classes, expected at most {MOST_CLASSES} in a small DTS"
        )
    labels = dataset.labels.astype(np.uint8).tobytes()
    images = np.ascontiguousarray(dataset.images).tobytes()
    mean, std = channel_statistics(dataset.images)
    header = DtsHeader(
        dataset_type=dataset_type or dataset.name.split("/")[0].upper()[:8],
        is_training=int(is_training),
        compress_level=0,
        val_set_prep=0,
        num_classes=dataset.num_classes,
        width=w,
        height=h,
        channels=c,
        colour=COLOURS[c],
        num_samples=n,
        total_bytes=len(labels) + len(images),
        max_area=h * w,
        mean=mean,
        std=std,
        crc32=zlib.crc32(images, zlib.crc32(labels)),
    )
    write_atomically(path, header.pack().ljust(SMALL_HEADER, b"\0"), labels, images)
    return header


def read_dts_header(path: str | os.PathLike[str]) -> DtsHeader:
    """Read only the header of any DTS file.

    Raises:
        FileNotFoundError: No such file.
        FormatError: Not a DTS file.
    """
    with open_maybe_gzip(path) as (stream, _):
        return DtsHeader.unpack(bytes(read_upto(stream, USED_BYTES)), path)


def read_dts(path: str | os.PathLike[str], *, name: str = "") -> ArrayDataset:
    """Read a small DTS file and verify its checksum.

    Args:
        path: The file, gzipped or not.
        name: What messages call the data set; its type and split unless given.

    Raises:
        FileNotFoundError: No such file.
        FormatError: Wrong magic or layout, sizes that do not fit, truncated or too long (both sizes
            are in the message), a checksum that differs, a label out of range.
    """
    path = Path(path)
    with open_maybe_gzip(path) as (stream, most):
        area = bytes(read_upto(stream, SMALL_HEADER))
        header = DtsHeader.unpack(area, path)
        check_small_header(header, len(area), path)
        check_promise(path, SMALL_HEADER + header.total_bytes, most)
        payload = read_payload(stream, path, SMALL_HEADER, header.total_bytes)
    crc = zlib.crc32(payload)
    if crc != header.crc32:
        raise FormatError(
            f"{path}: checksum of {header.total_bytes} payload bytes is {crc:08x}, expected "
            f"{header.crc32:08x}"
        )
    return dataset_of(header, np.frombuffer(payload, np.uint8), path, name)


def map_dts(path: str | os.PathLike[str], *, name: str = "") -> ArrayDataset:
    """Open a small DTS file without reading its pictures: they come from the disk when touched.

    The sizes are checked, the checksum is not: that would read everything.

    Raises:
        FileNotFoundError, FormatError: As :func:`read_dts`; also a gzipped file.
    """
    path = Path(path)
    header = read_dts_header(path)
    size = path.stat().st_size
    check_small_header(header, min(size, SMALL_HEADER), path)
    if size != SMALL_HEADER + header.total_bytes:
        what = "truncated" if size < SMALL_HEADER + header.total_bytes else "too long"
        raise FormatError(
            f"{path}: {what}, {size} bytes where its header promises "
            f"{SMALL_HEADER + header.total_bytes}"
        )
    if not header.num_samples:
        return read_dts(path, name=name)
    content = np.memmap(path, np.uint8, "r", SMALL_HEADER, (header.total_bytes,))
    return dataset_of(header, content, path, name)


def dataset_of(header: DtsHeader, content: np.ndarray, path: Path, name: str) -> ArrayDataset:
    """The data set in a payload."""
    n = header.num_samples
    images = content[n:].reshape(n, header.height, header.width, header.channels)
    split = "train" if header.is_training else "val"
    label = name or f"{header.dataset_type.lower() or path.stem}/{split}"
    return ArrayDataset(images, content[:n], header.num_classes, label)


def check_small_header(header: DtsHeader, area: int, path: Path) -> None:
    """Raise FormatError unless the header's sizes describe a small file and agree."""
    if header.num_blocks or header.header_size != SMALL_HEADER:
        raise FormatError(
            f"{path}: {header.num_blocks} blocks and a header of {header.header_size} bytes, "
            f"expected none and {SMALL_HEADER} (a DTS of blocks is read block by block)"
        )
    if area < SMALL_HEADER:
        raise FormatError(f"{path}: truncated, {area} bytes where the header takes {SMALL_HEADER}")
    sizes = (header.height, header.width, header.channels)
    if 0 in sizes or header.num_classes == 0:
        raise FormatError(
            f"{path}: pictures of {sizes} in {header.num_classes} classes, expected sizes >= 1"
        )
    need = header.num_samples * (1 + header.height * header.width * header.channels)
    if header.total_bytes != need:
        raise FormatError(
            f"{path}: header gives {header.total_bytes} payload bytes, but {header.num_samples} "
            f"samples of {header.height}x{header.width}x{header.channels} take {need}"
        )


def channel_statistics(
    images: np.ndarray,
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation of the first three channels, of pixels in [0, 1]."""
    mean, std = [0.0] * 3, [0.0] * 3
    for channel in range(min(3, images.shape[-1])):
        counts = np.bincount(images[..., channel].ravel(), minlength=256)
        if not counts.sum():
            continue
        share, levels = counts / counts.sum(), np.arange(256) / 255
        mean[channel] = float(share @ levels)
        std[channel] = float(np.sqrt(max(0.0, share @ levels**2 - mean[channel] ** 2)))
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
