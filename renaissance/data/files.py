"""Reading files that may lie: sizes are checked before memory is taken."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from renaissance.core.errors import FormatError

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
# deflate cannot expand by more than this, so a larger promise in a header is a lie
MOST_EXPANSION = 1032


class Source(Protocol):
    """What the readers need of an open file."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def open_maybe_gzip(path: str | os.PathLike[str]) -> Iterator[tuple[Source, int]]:
    """Open ``path`` whatever its name says: gzip is recognised by its first two bytes.

    Yields:
        The stream of plain bytes, and the most bytes it can possibly hold (exact if not gzip).

    Raises:
        FileNotFoundError: No such file; the message holds the path.
        FormatError: A directory, or a gzip stream that is damaged.
    """
    path = Path(path)
    if path.is_dir():
        raise FormatError(f"{path} is a directory, expected a file")
    try:
        file = cast(BinaryIO, open(path, "rb"))  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        magic = file.read(2)
        file.seek(0)
        if magic != GZIP_MAGIC:
            yield file, size
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream, size * MOST_EXPANSION
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(
                f"{path}: damaged gzip stream of {size} bytes ({str(error) or 'it ends early'})"
            ) from error


def read_upto(stream: Source, size: int) -> bytearray:
    """Read up to ``size`` bytes in chunks: memory grows with what is there, not promised."""
    content = bytearray()
    while len(content) < size:
        piece = stream.read(min(CHUNK, size - len(content)))
        if not piece:
            break
        content += piece
    return content


def read_payload(stream: Source, path: os.PathLike[str], header: int, expected: int) -> bytearray:
    """The rest of a file whose header of ``header`` bytes promised exactly ``expected`` more.

    Raises:
        FormatError: The file is shorter or longer; the message holds both sizes in bytes.
    """
    content = read_upto(stream, expected)
    if len(content) < expected:
        raise FormatError(
            f"{path}: truncated, {header + len(content)} bytes where its header promises "
            f"{header + expected}"
        )
    rest = 0
    while piece := stream.read(CHUNK):
        rest += len(piece)
    if rest:
        raise FormatError(
            f"{path}: too long, {header + expected + rest} bytes where its header promises "
            f"{header + expected}"
        )
    return content


def check_promise(path: os.PathLike[str], promised: int, most: int) -> None:
    """Refuse a header that promises more bytes than the file can hold, before reading on."""
    if promised > most:
        raise FormatError(
            f"{path}: truncated, its header promises {promised} bytes but the file can hold at "
            f"most {most}"
        )


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write a file so that it is either whole or absent, also when interrupted."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
