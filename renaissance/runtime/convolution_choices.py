"""Which engine each convolution runs with: measured once, recorded in a file, pinned.

The file is JSON that a person can read and a program can ship: device and cuDNN version, then the
convolution, then the choice. One that is damaged is as good as absent, entry by entry, and what is
missing is measured again. Writers wait for each other and replace the file in one step.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from renaissance.runtime.compile_cache import default_folder

FILE_VARIABLE = "RENAISSANCE_CONVOLUTIONS"
FILE_NAME = "convolutions.json"


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine of cuDNN and how it is set.

    Attributes:
        engine: Its number among cuDNN's engines for the operation.
        knobs: Pairs of a knob's type and its value.
        workspace_bytes: Scratch memory it takes.
        microseconds: How long it took when it was chosen.
    """

    engine: int
    knobs: tuple[tuple[int, int], ...]
    workspace_bytes: int
    microseconds: float

    @classmethod
    def of_line(cls, line: str) -> Choice:
        """Read a line of a measurement: engine, workspace bytes, microseconds, ``type=value``..."""
        engine, workspace, time, *knobs = line.split()
        pairs = (knob.split("=") for knob in knobs)
        settings = tuple((int(kind), int(value)) for kind, value in pairs)
        return cls(int(engine), settings, int(workspace), float(time))

    @classmethod
    def of_json(cls, entry: Any) -> Choice | None:
        """Read an entry of the file; None if it is none."""
        try:
            knobs = tuple((int(kind), int(value)) for kind, value in entry["knobs"])
            numbers = int(entry["engine"]), knobs, int(entry["workspace_bytes"])
            return cls(*numbers, float(entry["microseconds"]))
        except (KeyError, TypeError, ValueError):
            return None

    def as_json(self) -> dict[str, Any]:
        """An entry of the file."""
        return {
            "engine": self.engine,
            "knobs": [list(pair) for pair in self.knobs],
            "workspace_bytes": self.workspace_bytes,
            "microseconds": self.microseconds,
        }


class Choices:
    """Recorded choices.

    Args:
        path: The file; default ``RENAISSANCE_CONVOLUTIONS`` if set, else one in the cache folder.
            Where it cannot be written, choices last as long as the process.
    """

    def __init__(self, path: Path | None = None):
        default = os.environ.get(FILE_VARIABLE) or default_folder() / FILE_NAME
        self.path = Path(default if path is None else path)
        self._held = self._read()

    def get(self, group: str, name: str) -> Choice | None:
        """The choice for a convolution; None if it was not made yet.

        Args:
            group: Device and version of cuDNN.
            name: The convolution.
        """
        return Choice.of_json(self._held.get(group, {}).get(name))

    def put(self, group: str, name: str, choice: Choice) -> None:
        """Record a choice beside those that other processes recorded meanwhile."""
        self._held.setdefault(group, {})[name] = choice.as_json()
        with contextlib.suppress(OSError), self._alone():
            held = self._read()
            held.setdefault(group, {})[name] = choice.as_json()
            self._write(json.dumps(held, indent=1, sort_keys=True) + "\n")
            self._held = held

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        groups = content.items() if isinstance(content, dict) else ()
        return {group: entries for group, entries in groups if isinstance(entries, dict)}

    def _write(self, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, self.path)
        except OSError:
            os.unlink(name)
            raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_name(f"{self.path.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
