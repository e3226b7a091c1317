"""``runs/<name>/``: what a run leaves behind. Never written over by a later run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from renaissance.core.errors import fail

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def check_run_name(name: Any) -> str:
    """Return ``name`` if it can name a directory: letters, digits, ``_``, ``-`` and ``.``."""
    if not isinstance(name, str):
        fail(TypeError, "run name", name, "a string")
    if not _NAME.fullmatch(name):
        fail(ValueError, "run name", name, "letters, digits, '_', '-' and '.', not '.' first")
    return name


class RunDirectory:
    """A fresh directory for one run.

    Attributes:
        path: Where it is.
        metrics: The CSV file of epoch records.
        config: The run's configuration as JSON.
        curve: A picture of the curves, where matplotlib is installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.csv"
        self.config = path / "config.json"
        self.curve = path / "curve.png"

    @classmethod
    def create(cls, root: str | os.PathLike[str], name: str) -> RunDirectory:
        """Make ``root/name``; if that exists, ``root/name-2``, ``root/name-3`` and so on.

        Raises:
            ValueError: the name cannot name a directory.
            OSError: the directory cannot be made.
        """
        check_run_name(name)
        base = Path(root)
        base.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = base / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return cls(path)

    def write_config(self, config: dict[str, Any]) -> None:
        """Write the configuration; objects without a JSON form appear by their ``repr``."""
        text = json.dumps(config, indent=2, default=repr)
        write_atomically(self.config, (text + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or the new one, whole, at any time."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
