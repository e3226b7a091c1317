"""Mutations of valid files of every format, and what reading them may do.

A reader may return a data set or raise FormatError; nothing else: no crash, no hang, no memory
beyond a multiple of the file. Run directly for many mutations::

    python tests/data/fuzzing.py --mutations 10000
"""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from data_samples import encoded_noise, noise_dataset, smooth_picture

from renaissance.core.errors import FormatError
from renaissance.data import (
    DtsBlocks,
    TarDataset,
    read_cifar,
    read_dts,
    read_idx,
    write_cifar,
    write_dts,
    write_dts_blocks,
    write_idx,
)
from renaissance.data.codec import decode
from renaissance.data.dts import map_dts

Reader = Callable[[Path], object]
SLOWEST_SECONDS = 10.0
SPARE_BYTES = 24 << 20
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def read_blocks(path: Path) -> None:
    """Open, read and decode everything."""
    data = DtsBlocks(path)
    try:
        for i in range(len(data)):
            try:
                data.decode(i)
            except FormatError:
                pass
        data.verify()
    finally:
        data.close()


def read_tar(path: Path) -> None:
    """Open and decode everything."""
    data = TarDataset(path)
    for i in range(len(data)):
        data.decode(i)


def make_tar(path: Path, mode: str) -> None:
    """A small archive of class folders."""
    import simplejpeg

    with tarfile.open(path, mode) as archive:
        for i, name in enumerate(("a/0.jpg", "a/1.jpg", "b/0.jpg")):
            content = simplejpeg.encode_jpeg(smooth_picture(8, 8, 3, i))
            entry = tarfile.TarInfo(f"train/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def formats(folder: Path) -> dict[str, tuple[bytes, Reader]]:
    """Every format: a small valid file's bytes, and its reader."""
    import cv2
    import simplejpeg

    images = noise_dataset(5, 6, 7, 1)
    path = folder / "valid"
    found: dict[str, tuple[bytes, Reader]] = {}
    write_idx(path, images.images[..., 0])
    found["idx"] = path.read_bytes(), read_idx
    found["idx.gz"] = gzip.compress(path.read_bytes()), read_idx
    write_dts(path, images, is_training=True)
    found["dts"] = path.read_bytes(), read_dts
    found["dts mapped"] = path.read_bytes(), map_dts
    write_cifar(path, noise_dataset(2, 32, 32, 3))
    found["cifar"] = path.read_bytes(), read_cifar
    write_dts_blocks(path, encoded_noise(6), is_training=True, bytes_per_block=8192)
    found["dts blocks"] = path.read_bytes(), read_blocks
    for name, mode in (("tar", "w"), ("tar.gz", "w:gz")):
        make_tar(path, mode)
        found[name] = path.read_bytes(), read_tar
    picture = smooth_picture(24, 31, 3, 1)
    found["jpeg"] = simplejpeg.encode_jpeg(picture), lambda p: decode(p.read_bytes())
    png = cv2.imencode(".png", picture)[1].tobytes()
    found["png"] = png, lambda p: decode(p.read_bytes())
    return found


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Truncations, flipped bits, telling bytes, runs repeated and removed; often in the header."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(int(draw.integers(1, 4))):
            reach = len(data) if draw.random() < 0.4 else min(len(data), 200)
            if not reach:
                break
            at, kind = int(draw.integers(reach)), int(draw.integers(6))
            if kind == 0:
                data[at] ^= 1 << int(draw.integers(8))
            elif kind == 1:
                data[at] = INTERESTING[int(draw.integers(len(INTERESTING)))]
            elif kind == 2:
                data[at : at + 4] = bytes(draw.integers(0, 256, 4, np.uint8))
            elif kind == 3:
                del data[at:]
            elif kind == 4:
                del data[at : at + int(draw.integers(1, 64))]
            else:
                data[at:at] = data[at : at + int(draw.integers(1, 64))]
        yield bytes(data)


def fuzz(content: bytes, reader: Reader, folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Read mutations of a file.

    Returns:
        How many were read, and how many refused with FormatError.

    Raises:
        AssertionError: One took too long or too much memory.
        Exception: Whatever else a reader raised.
    """
    path, read, refused = folder / "mutated", 0, 0
    tracemalloc.start()
    try:
        for number, data in enumerate(mutations(content, count, seed)):
            path.write_bytes(data)
            tracemalloc.reset_peak()
            before, begin = tracemalloc.get_traced_memory()[0], time.monotonic()
            try:
                reader(path)
                read += 1
            except FormatError:
                refused += 1
            except BaseException as error:
                error.add_note(f"mutation {number} of seed {seed}: {data[:200]!r}")
                raise
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken < SPARE_BYTES + 8 * len(data), f"mutation {number} took {taken} bytes"
            spent = time.monotonic() - begin
            assert spent < SLOWEST_SECONDS, f"mutation {number} took {spent:.1f} s"
    finally:
        tracemalloc.stop()
    return read, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, (content, reader) in formats(folder).items():
            if options.only not in kind:
                continue
            begin = time.monotonic()
            read, refused = fuzz(content, reader, folder, options.mutations, options.seed)
            spent = time.monotonic() - begin
            print(f"{kind:12} {read + refused:6} mutations: {read} read, {refused} refused, "
                  f"{spent:.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
