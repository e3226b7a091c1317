"""DTS for encoded pictures: a header area, then blocks of equal size.

A block is its magic "LV0B".."LV3B" (compression level), u32 id, u32 count, then u32 offsets[count],
u32 sizes[count], i32 labels[count] and the JPEG bytes; offsets count from the block's begin. Header
area and blocks are 16 MiB each, so a block is read in one go and fits a host slot.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from renaissance.core.errors import FormatError, check_int
from renaissance.data import codec
from renaissance.data.dataset import check_labels
from renaissance.data.dts_header import USED_BYTES, DtsHeader
from renaissance.data.encoded import EncodedDataset

MEBIBYTE = 1 << 20
BLOCK_BYTES = 16 * MEBIBYTE
BLOCK_HEADER = struct.Struct("<4sII")
ENTRY_BYTES = 12  # offset, size and label
LEAST_BLOCK = 4096
QUALITY = {1: 90, 2: 80, 3: 70}


def compress(data: bytes, level: int, channels: int) -> bytes:
    """Re-encode a picture at a level; the original bytes if that does not make it smaller."""
    if level == 0:
        return data
    smaller = codec.encode_jpeg(codec.decode(data, channels), QUALITY[level])
    return smaller if len(smaller) < len(data) else data


def pack_block(
    number: int, level: int, pictures: list[bytes], labels: list[int], bytes_per_block: int
) -> bytes:
    """One block, padded with zeros."""
    count = len(pictures)
    sizes = np.array([len(p) for p in pictures], np.uint32)
    first = BLOCK_HEADER.size + ENTRY_BYTES * count
    offsets = (first + np.concatenate(([0], np.cumsum(sizes[:-1], dtype=np.int64)))).astype("<u4")
    head = BLOCK_HEADER.pack(f"LV{level}B".encode(), number, count)
    table = offsets.tobytes() + sizes.astype("<u4").tobytes() + np.array(labels, "<i4").tobytes()
    return b"".join((head, table, *pictures)).ljust(bytes_per_block, b"\0")


def write_dts_blocks(
    path: str | os.PathLike[str],
    dataset: EncodedDataset,
    *,
    is_training: bool,
    level: int = 0,
    dataset_type: str = "IMAGENET",
    bytes_per_block: int = BLOCK_BYTES,
) -> DtsHeader:
    """Write encoded pictures as a DTS file of blocks.

    Args:
        path: The file; it appears whole or not at all.
        dataset: JPEGs (or PNGs, kept as they are at level 0).
        is_training: Marks the training split.
        level: 0 keeps the original bytes; 1, 2, 3 re-encode at quality 90, 80, 70 where that is
            smaller.
        dataset_type: Up to 8 characters.
        bytes_per_block: 16 MiB; smaller ones serve tests.

    Returns:
        The header written.

    Raises:
        FormatError: A picture does not fit a block, or is damaged.
    """
    check_int("level", level, 0, 3)
    check_int("bytes_per_block", bytes_per_block, LEAST_BLOCK, 1 << 30)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    blocks = crc = most_area = most_per_block = before = after = 0
    try:
        with open(part, "wb") as file:
            file.truncate(bytes_per_block)
            file.seek(bytes_per_block)
            for labels, pictures, originals in blocks_of(dataset, level, bytes_per_block):
                block = pack_block(blocks, level, pictures, labels, bytes_per_block)
                crc = zlib.crc32(block, crc)
                file.write(block)
                blocks += 1
                most_per_block = max(most_per_block, len(pictures))
                before += originals
                for picture in pictures:
                    after += len(picture)
                    height, width = codec.image_size(picture)
                    most_area = max(most_area, height * width)
            header = DtsHeader(
                dataset_type=dataset_type,
                is_training=int(is_training),
                compress_level=level,
                val_set_prep=0,
                num_classes=dataset.num_classes,
                width=0,
                height=0,
                channels=dataset.channels,
                colour="RGB" if dataset.channels == 3 else "GRAY",
                num_samples=len(dataset),
                num_blocks=blocks,
                total_bytes=blocks * bytes_per_block,
                header_size=bytes_per_block,
                block_bytes=blocks * bytes_per_block,
                bytes_per_block=bytes_per_block,
                block_header_size=BLOCK_HEADER.size,
                max_area=most_area,
                max_per_block=most_per_block,
                compression_ratio=after / before if before else 1.0,
                crc32=crc,
            )
            file.seek(0)
            file.write(header.pack())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return header


def blocks_of(
    dataset: EncodedDataset, level: int, bytes_per_block: int
) -> Iterator[tuple[list[int], list[bytes], int]]:
    """Labels, pictures and original bytes of one block after the other, filled in sample order."""
    labels: list[int] = []
    pictures: list[bytes] = []
    used, originals = BLOCK_HEADER.size, 0
    for index in range(len(dataset)):
        original = dataset.read(index)
        try:
            data = compress(original, level, dataset.channels)
            codec.image_size(data)
        except FormatError as error:
            raise FormatError(f"sample {index} ({dataset.where(index)}): {error}") from error
        need = ENTRY_BYTES + len(data)
        if need + BLOCK_HEADER.size > bytes_per_block:
            raise FormatError(
                f"sample {index} ({dataset.where(index)}) has {len(data)} bytes, a block of "
                f"{bytes_per_block} cannot hold it; a higher compression level may make it fit"
            )
        if used + need > bytes_per_block:
            yield labels, pictures, originals
            labels, pictures, used, originals = [], [], BLOCK_HEADER.size, 0
        labels.append(int(dataset.labels[index]))
        pictures.append(data)
        used += need
        originals += len(original)
    if pictures:
        yield labels, pictures, originals


class DtsBlocks(EncodedDataset):
    """A DTS file of blocks, read sample by sample or block by block.

    Opening reads the header and the blocks' tables only; :meth:`verify` reads everything.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Open a file.

        Raises:
            FileNotFoundError: No such file.
            FormatError: Wrong magic, sizes that do not fit, a damaged table, a label out of range.
        """
        self._path = Path(path)
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: no such file") from None
        try:
            self.header = DtsHeader.unpack(os.pread(self._file, USED_BYTES, 0), path)
            self._check_sizes(os.fstat(self._file).st_size)
            tables = [self._read_table(block) for block in range(self.header.num_blocks)]
            columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
            self._offsets, self._sizes, labels = columns or [np.empty(0, np.int64)] * 3
            if len(labels) != self.header.num_samples:
                raise FormatError(
                    f"{path}: its blocks hold {len(labels)} samples, expected "
                    f"{self.header.num_samples} as its header says"
                )
            check_labels(str(path), labels, len(labels), self.header.num_classes)
            self.block_sizes = [len(table[0]) for table in tables]
            split = "train" if self.header.is_training else "val"
            super().__init__(
                labels,
                self.header.num_classes,
                channels=self.header.channels,
                name=f"{self.header.dataset_type.lower()}/{split}" if name is None else name,
            )
        except BaseException as error:
            self.close()
            if isinstance(error, ValueError) and not isinstance(error, FormatError):
                raise FormatError(f"{path}: {error}") from error
            raise

    def _check_sizes(self, actual: int) -> None:
        h, path = self.header, self._path
        if not h.num_blocks or not LEAST_BLOCK <= h.bytes_per_block <= 1 << 30:
            raise FormatError(
                f"{path}: {h.num_blocks} blocks of {h.bytes_per_block} bytes, expected at least "
                f"one of at least {LEAST_BLOCK} (a small DTS holds pixels, not blocks)"
            )
        payload = h.num_blocks * h.bytes_per_block
        if h.total_bytes != payload or not USED_BYTES <= h.header_size <= 1 << 30:
            raise FormatError(
                f"{path}: header gives {h.total_bytes} payload bytes after {h.header_size}, but "
                f"{h.num_blocks} blocks of {h.bytes_per_block} take {payload}"
            )
        if actual != h.header_size + payload:
            what = "truncated" if actual < h.header_size + payload else "too long"
            raise FormatError(
                f"{path}: {what}, {actual} bytes where its header promises "
                f"{h.header_size + payload}"
            )

    def _read_table(self, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Absolute offsets, sizes and labels of a block's samples."""
        h = self.header
        begin = h.header_size + block * h.bytes_per_block
        where = f"{self._path}: block {block}"
        magic, number, count = BLOCK_HEADER.unpack(os.pread(self._file, BLOCK_HEADER.size, begin))
        if magic not in (b"LV0B", b"LV1B", b"LV2B", b"LV3B"):
            raise FormatError(f"{where} begins with {magic!r}, expected b'LV0B' to b'LV3B'")
        if number != block:
            raise FormatError(f"{where} has id {number}")
        first = BLOCK_HEADER.size + ENTRY_BYTES * count
        if first > h.bytes_per_block:
            raise FormatError(f"{where} claims {count} samples, more than its bytes can list")
        raw = os.pread(self._file, ENTRY_BYTES * count, begin + BLOCK_HEADER.size)
        offsets, sizes = np.frombuffer(raw, "<u4", 2 * count).reshape(2, count).astype(np.int64)
        labels = np.frombuffer(raw, "<i4", count, 8 * count)
        wrong = np.flatnonzero((offsets < first) | (offsets + sizes > h.bytes_per_block))
        if len(wrong):
            i = int(wrong[0])
            raise FormatError(
                f"{where}: sample {i} lies at {offsets[i]} with {sizes[i]} bytes, expected inside "
                f"{first} to {h.bytes_per_block}"
            )
        return offsets + begin, sizes, labels

    def read(self, index: int) -> bytes:
        return os.pread(self._file, int(self._sizes[index]), int(self._offsets[index]))

    def where(self, index: int) -> str:
        block = int(self._offsets[index] - self.header.header_size) // self.header.bytes_per_block
        return f"{self._path}, block {block}"

    def verify(self) -> None:
        """Read the whole payload and compare its checksum.

        Raises:
            FormatError: It differs.
        """
        crc, position = 0, self.header.header_size
        end = position + self.header.total_bytes
        while position < end:
            piece = os.pread(self._file, min(BLOCK_BYTES, end - position), position)
            if not piece:
                raise FormatError(f"{self._path}: truncated while reading, at byte {position}")
            crc = zlib.crc32(piece, crc)
            position += len(piece)
        if crc != self.header.crc32:
            raise FormatError(
                f"{self._path}: checksum of {self.header.total_bytes} payload bytes is {crc:08x}, "
                f"expected {self.header.crc32:08x}"
            )

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()
