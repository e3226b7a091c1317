"""Folders of one subfolder per class, and tar archives of such folders."""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path

from renaissance.core.errors import FormatError
from renaissance.data.encoded import EncodedDataset

ENDINGS = {".jpg", ".jpeg", ".png"}


class FolderDataset(EncodedDataset):
    """Pictures in ``root/<class>/<any depth>/<name>.jpg|.jpeg|.png``.

    Classes are the sorted subfolder names, samples the sorted paths: ids do not depend on the file
    system's order.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, channels: int = 3, name: str | None = None
    ) -> None:
        """Scan a folder.

        Args:
            root: Holds one folder per class.
            channels: 1 or 3; pictures are decoded to that many.
            name: What messages call it; the folder's name unless given.

        Raises:
            FileNotFoundError: No such folder.
            FormatError: No class folders, or no pictures in them.
        """
        root = Path(root)
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: no such directory, expected one folder per class")
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        classes = [c for c in classes if not c.startswith(".")]
        if not classes:
            raise FormatError(f"{root}: no folders in it, expected one per class")
        self._paths: list[Path] = []
        labels: list[int] = []
        for label, folder in enumerate(classes):
            found = sorted(pictures_under(root / folder))
            self._paths += found
            labels += [label] * len(found)
        if not labels:
            raise FormatError(f"{root}: {len(classes)} folders but no .jpg, .jpeg or .png in them")
        label_name = root.name if name is None else name
        super().__init__(
            labels, len(classes), channels=channels, name=label_name, class_names=tuple(classes)
        )

    def read(self, index: int) -> bytes:
        return self._paths[index].read_bytes()

    def where(self, index: int) -> str:
        return str(self._paths[index])


def pictures_under(folder: Path) -> Iterator[Path]:
    """All pictures below a folder."""
    for directory, _, names in os.walk(folder):
        for name in names:
            if os.path.splitext(name)[1].lower() in ENDINGS and not name.startswith("."):
                yield Path(directory, name)


class TarDataset(EncodedDataset):
    """A tar of class folders, plain or compressed, held in memory.

    Members are ``[prefix/]<class>/<name>``; the prefix chooses a split where there are several.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: str | None = None,
        channels: int = 3,
        name: str | None = None,
    ) -> None:
        """Read an archive.

        Args:
            path: The .tar, .tar.gz, ...
            prefix: Folder inside it that holds the class folders, such as "train"; not needed if
                there is only one.
            channels: 1 or 3.
            name: What messages call it.

        Raises:
            FileNotFoundError: No such file.
            FormatError: Not a tar, damaged, no pictures, or several prefixes and none chosen.
        """
        self._path = Path(path)
        if not self._path.is_file():
            raise FileNotFoundError(f"{path}: no such file, expected a tar of class folders")
        wanted = None if prefix is None else posixpath.normpath(prefix)
        members, prefixes = read_members(self._path, wanted)
        if wanted is None:
            if len(prefixes) != 1:
                raise FormatError(f"{path}: class folders in {prefixes}, choose one as prefix")
            wanted = prefixes[0]
        if not members:
            raise FormatError(f"{path}: no pictures under {prefix!r}, there are {prefixes}")
        chosen = sorted(members)
        folders = [posixpath.basename(posixpath.dirname(m)) for m in chosen]
        classes = sorted(set(folders))
        index = {folder: label for label, folder in enumerate(classes)}
        self._members = chosen
        self._bytes = [members[m] for m in chosen]
        super().__init__(
            [index[folder] for folder in folders],
            len(classes),
            channels=channels,
            name=name if name is not None else f"{self._path.name}:{wanted}",
            class_names=tuple(classes),
        )

    def read(self, index: int) -> bytes:
        return self._bytes[index]

    def where(self, index: int) -> str:
        return f"{self._path}:{self._members[index]}"


def read_members(path: Path, wanted: str | None) -> tuple[dict[str, bytes], list[str]]:
    """The pictures of a tar by member name, of one prefix if wanted; and all prefixes there are."""
    members: dict[str, bytes] = {}
    prefixes: set[str] = set()
    try:
        with tarfile.open(path, "r|*") as archive:  # as a stream: once through, no seeking
            for member in archive:
                ending = posixpath.splitext(member.name)[1].lower()
                if not member.isfile() or ending not in ENDINGS:
                    continue
                name = posixpath.normpath(member.name)
                prefix = posixpath.dirname(posixpath.dirname(name)) or "."
                prefixes.add(prefix)
                if wanted not in (None, prefix):
                    continue
                stream = archive.extractfile(member)
                content = b"" if stream is None else read_member(stream, member.size)
                if len(content) != member.size:
                    raise FormatError(
                        f"{path}: truncated, {name} has {len(content)} of {member.size} bytes"
                    )
                members[name] = content
    except FormatError:
        raise
    except Exception as error:  # on damaged archives tarfile raises nearly anything
        if not begins_like_tar(path):
            raise FormatError(
                f"{path}: not a file of a known format; expected a DTS file or a tar of class "
                "folders (.tar, .tar.gz, .tar.xz, ...), or a directory with a data set"
            ) from error
        raise FormatError(f"{path}: damaged tar archive ({error})") from error
    if not prefixes:
        raise FormatError(f"{path}: no .jpg, .jpeg or .png in it")
    return members, sorted(prefixes)


def begins_like_tar(path: Path) -> bool:
    """Whether a file's first entry is a tar's, or its first bytes those of a compressed file."""
    with open(path, "rb") as file:
        magic = file.read(6)
    if magic.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")):
        return True
    try:
        return tarfile.is_tarfile(path)
    except Exception:  # as above
        return False


def read_member(stream, size: int) -> bytes:  # type: ignore[no-untyped-def]
    """A member's bytes, in pieces: a promised size costs nothing until the bytes are there."""
    pieces, left = [], size
    while left > 0:
        piece = stream.read(min(left, 1 << 20))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
