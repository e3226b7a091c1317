"""A cache of compiled things on disk that survives crashes, concurrent processes and bad sectors.

An entry is a file named after its key, written beside its place and moved there in one step, so
that a reader sees all of it or nothing. It carries a digest of its content: one that was cut or
damaged is as good as absent, and is replaced by the next write. Whatever can change a result is
part of the key; so a new version of anything simply misses.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

FOLDER_VARIABLE = "RENAISSANCE_CACHE"
_MAGIC = b"RNCACHE1"


def default_folder() -> Path:
    """Where things are kept: ``RENAISSANCE_CACHE`` if set, else the user's cache folder."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "renaissance"


def key_of(*parts: str | bytes) -> str:
    """A key from everything the entry depends on; parts never run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class CompileCache:
    """Bytes by key, in a folder.

    Args:
        folder: Made when first written to. A folder that cannot be written to caches nothing.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = default_folder() if folder is None else Path(folder)

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The entry's content; None if it is absent or damaged."""
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        head, content = data[:40], data[40:]
        if head != _MAGIC + hashlib.sha256(content).digest():
            return None
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an entry, replacing what was there."""
        place = self.path(key)
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=place.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(content).digest() + content)
                os.replace(name, place)
            except OSError:
                os.unlink(name)
                raise
