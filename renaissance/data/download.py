"""Fetching data sets: mirrors in turn, interrupted transfers resumed, checksums compared."""

from __future__ import annotations

import hashlib
import os
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from renaissance.core.errors import FormatError, fail

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30

Progress = Callable[[str, int, int], None]
"""``progress(file, bytes so far, bytes in all or 0)``."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch.

    Attributes:
        name: Of the file, the same on every mirror.
        md5: Its published checksum.
        unpacks: Files it contains that are wanted beside it; empty: itself.
    """

    name: str
    md5: str
    unpacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a data set is published.

    Attributes:
        mirrors: Addresses its files' names are appended to.
        files: What to fetch.
    """

    mirrors: tuple[str, ...]
    files: tuple[Remote, ...]


def idx_files(*md5: str) -> tuple[Remote, ...]:
    """The four IDX files of MNIST and its kin."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(Remote(f"{n}-ubyte.gz", m) for n, m in zip(names, md5, strict=True))


TORONTO = ("https://www.cs.toronto.edu/~kriz/",)

ORIGINS: dict[str, Origin] = {
    "mnist": Origin(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        idx_files(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion_mnist": Origin(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        idx_files(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar10": Origin(
        TORONTO,
        (
            Remote(
                "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530",
                (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
            ),
        ),
    ),
    "cifar100": Origin(
        TORONTO,
        (
            Remote(
                "cifar-100-binary.tar.gz",
                "03b5dce01913d631647c71ecec9e9cb8",
                ("train.bin", "test.bin"),
            ),
        ),
    ),
}


def fetch(
    name: str,
    directory: str | os.PathLike[str],
    *,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Path]:
    """Fetch a data set's files into a directory; what is there already is kept.

    Args:
        name: mnist, fashion_mnist, cifar10 or cifar100.
        directory: Made if it does not exist.
        mirrors: Addresses to try before the usual ones.
        progress: Called as bytes arrive.

    Returns:
        The files that are ready to be read.

    Raises:
        ValueError: It cannot be fetched.
        OSError: No mirror answers; the message says what each did.
        FormatError: An archive lacks a file.
    """
    key = name.lower().replace("-", "_")
    if key not in ORIGINS:
        fail(ValueError, "download of", name, f"one of {', '.join(ORIGINS)}")
    origin, folder = ORIGINS[key], Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        path
        for remote in origin.files
        for path in fetch_one(remote, (*mirrors, *origin.mirrors), folder, progress)
    ]


def fetch_one(
    remote: Remote, mirrors: Sequence[str], folder: Path, progress: Progress | None = None
) -> list[Path]:
    """Fetch one file from the first mirror that has it, and unpack it."""
    wanted = [folder / name for name in remote.unpacks] or [folder / remote.name]
    if all(path.is_file() for path in wanted):
        return wanted
    target = folder / remote.name
    if not target.is_file() or md5_of(target) != remote.md5:
        problems = []
        for mirror in mirrors:
            try:
                transfer(mirror + remote.name, target, remote.md5, progress)
                break
            except (OSError, HTTPException, FormatError) as error:
                problems.append(f"{mirror}: {error}")
        else:
            raise OSError(f"{remote.name} cannot be fetched; " + "; ".join(problems))
    if remote.unpacks:
        unpack(target, remote.unpacks, folder)
    return wanted


def transfer(url: str, target: Path, md5: str, progress: Progress | None = None) -> None:
    """Copy a file from an address, going on where an earlier attempt stopped.

    The bytes so far lie beside the target as ``.part``; the target appears when it is whole and its
    checksum right.

    Raises:
        OSError: The address does not answer, or the transfer broke off; what came is kept.
        FormatError: The checksum differs; what came is thrown away.
    """
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "renaissance"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # the range begins at the end: everything is there already
            raise OSError(f"{url}: {error.code} {error.reason}") from None
    else:
        with answer:
            resumed = have > 0 and answer.status == 206
            receive(answer, part, have if resumed else 0, target.name, progress)
    actual = md5_of(part)
    if actual != md5:
        size = part.stat().st_size
        part.unlink()
        raise FormatError(f"{url}: MD5 of {size} bytes is {actual}, expected {md5}")
    os.replace(part, target)


def receive(answer, part: Path, have: int, name: str, progress: Progress | None) -> None:  # type: ignore[no-untyped-def]
    """Append what arrives to the part; a short transfer is an error."""
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else 0
    with open(part, "ab" if have else "wb") as file:
        while piece := answer.read(CHUNK):
            file.write(piece)
            have += len(piece)
            if progress is not None:
                progress(name, have, total)
    if have < total:
        raise OSError(f"{name}: the transfer broke off after {have} of {total} bytes")


def md5_of(path: Path) -> str:
    """A file's MD5: an integrity check against what its authors publish."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def unpack(archive: Path, names: Sequence[str], folder: Path) -> None:
    """Take the named files out of a tar, wherever in it they lie; nothing else is written.

    Raises:
        FormatError: One is missing.
    """
    missing = set(names)
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            stream = tar.extractfile(member) if name in missing and member.isfile() else None
            if stream is None:
                continue
            part = folder / f".{name}.part"
            with open(part, "wb") as file:
                while piece := stream.read(CHUNK):
                    file.write(piece)
            os.replace(part, folder / name)
            missing.discard(name)
    if missing:
        raise FormatError(f"{archive}: holds no {', '.join(sorted(missing))}")
