"""The header all DTS files begin with: 144 packed little-endian bytes, zero-padded to its area."""

from __future__ import annotations

import os
import struct
from dataclasses import astuple, dataclass, fields, replace

from renaissance.core.errors import FormatError

MAGIC = b".DTS"
VERSION = bytes((1, 0, 0, 0))
LAYOUT = b"NHWC"
PACKING = struct.Struct("<4s4s8s4I4s3I4s5IQIQ5If3f3fI")
USED_BYTES = 144
SMALL_HEADER = 256
assert PACKING.size == USED_BYTES


@dataclass(frozen=True, slots=True)
class DtsHeader:
    """Fields of a DTS header in file order; magic, version and layout are fixed.

    Attributes:
        dataset_type: Up to 8 ASCII characters, such as ``"MNIST"``.
        is_training: 1 for the training split.
        compress_level: 0 original bytes, up to 3 ever smaller (JPEG blocks only).
        val_set_prep: 1 if the pictures are already prepared for validation.
        num_classes: Labels lie in ``[0, num_classes)``.
        width, height, channels: Of every picture; 0 where they differ (blocks).
        colour: Up to 4 characters, ``"GRAY"`` or ``"RGB"``.
        num_samples: Pictures in this file.
        num_volumes, volume_id: A data set may span several files.
        num_blocks: Blocks in this file; 0 in small files.
        reserved: 0.
        total_bytes: Bytes of payload, that is of everything after the header area.
        header_size: Bytes of the header area: 256 in small files, 16 MiB before blocks.
        block_bytes: Bytes of all blocks together.
        bytes_per_block: 16 MiB, or 0 in small files.
        block_header_size: Bytes of magic, id and count in each block.
        alignment: Bytes the payload's parts are aligned to.
        max_area: Most pixels of one picture.
        max_per_block: Most pictures in one block.
        compression_ratio: Payload bytes over the original's.
        mean, std: Per channel, of pixels in [0, 1]; 0 beyond the channels or where not measured.
        crc32: CRC-32 (zlib's) of the payload.
    """

    dataset_type: str
    is_training: int
    compress_level: int
    val_set_prep: int
    num_classes: int
    width: int
    height: int
    channels: int
    colour: str
    num_samples: int
    num_volumes: int = 1
    volume_id: int = 0
    num_blocks: int = 0
    reserved: int = 0
    total_bytes: int = 0
    header_size: int = SMALL_HEADER
    block_bytes: int = 0
    bytes_per_block: int = 0
    block_header_size: int = 0
    alignment: int = 1
    max_area: int = 0
    max_per_block: int = 0
    compression_ratio: float = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (0.0, 0.0, 0.0)
    crc32: int = 0

    def pack(self) -> bytes:
        """The 144 bytes.

        Raises:
            FormatError: A field does not fit its place.
        """
        values = list(astuple(self))
        texts = {0: 8, 8: 4}
        for position, room in texts.items():
            text = values[position].encode("ascii", "replace")
            if len(text) > room:
                raise FormatError(f"DTS header text {text!r} is longer than {room} characters")
            values[position] = text
        mean, std, crc = values[-3:]
        try:
            return PACKING.pack(
                MAGIC, VERSION, *values[:5], LAYOUT, *values[5:-3], *mean, *std, crc
            )
        except struct.error as error:
            raise FormatError(f"DTS header field out of range: {error} in {self}") from error

    @classmethod
    def unpack(cls, content: bytes, path: str | os.PathLike[str]) -> DtsHeader:
        """Read the header at the begin of ``content``.

        Raises:
            FormatError: Too short, or wrong magic, version or layout.
        """
        if len(content) < USED_BYTES:
            raise FormatError(
                f"{path}: truncated, {len(content)} bytes where a DTS header takes {USED_BYTES}"
            )
        magic, version, kind, *rest = PACKING.unpack(content[:USED_BYTES])
        if magic != MAGIC:
            raise FormatError(f"{path}: magic is {magic!r}, expected {MAGIC!r}")
        if version[0] != VERSION[0]:
            raise FormatError(
                f"{path}: DTS version {'.'.join(map(str, version))}, expected {VERSION[0]}.x"
            )
        first, layout, sizes, colour, tail = rest[:4], rest[4], rest[5:8], rest[8], rest[9:]
        if layout != LAYOUT:
            raise FormatError(f"{path}: layout is {layout!r}, expected {LAYOUT!r}")
        numbers, mean, std, crc = tail[:-7], tail[-7:-4], tail[-4:-1], tail[-1]
        values = (text(kind), *first, *sizes, text(colour), *numbers, tuple(mean), tuple(std), crc)
        return cls(**dict(zip((f.name for f in fields(cls)), values, strict=True)))

    def with_payload(self, total_bytes: int, crc32: int) -> DtsHeader:
        """The same header for a payload of this size and checksum."""
        return replace(self, total_bytes=total_bytes, crc32=crc32)


def text(raw: bytes) -> str:
    """Characters up to the first zero byte."""
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")
