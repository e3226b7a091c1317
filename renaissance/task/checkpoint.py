"""Checkpoints: a whole state in one npz file with a JSON header, replaced atomically.

A tensor is stored under ``REGION/name``, the name the memory plan gives it, so that a file can be
read with numpy alone. The member ``header`` holds JSON: format, version, epoch, a hash of the
tensors, and whatever the writer adds.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from renaissance.core.errors import FormatError
from renaissance.core.types import Region
from renaissance.lowering.state import ArrayState, owned
from renaissance.task.run_directory import write_atomically

FORMAT = "renaissance checkpoint"
VERSION = 1
_HEADER = "header"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in host memory.

    Attributes:
        path: The file, for messages.
        header: The JSON header.
        tensors: Every tensor by ``REGION/name``.
    """

    path: Path
    header: dict[str, Any]
    tensors: dict[str, np.ndarray]

    @property
    def epoch(self) -> int:
        """Epochs trained when it was written."""
        return int(self.header["epoch"])

    def restore(self, template: ArrayState) -> ArrayState:
        """The stored tensors as a state with the structure of ``template``.

        Args:
            template: A state of the program that will go on, such as ``program.init(0)``.

        Raises:
            ValueError: the checkpoint belongs to another plan; names the first tensor that differs
                and what was expected.
        """
        expected = {_key(region, name): value for region, name, value in template.named_leaves()}
        for key, value in expected.items():
            if key not in self.tensors:
                raise ValueError(f"{self.path}: no tensor {key}, expected {_describe(value)}")
            found = self.tensors[key]
            if found.shape != value.shape or found.dtype != value.dtype:
                raise ValueError(
                    f"{self.path}: tensor {key} is {_describe(found)}, expected {_describe(value)}"
                )
        for key in self.tensors:
            if key not in expected:
                raise ValueError(
                    f"{self.path}: tensor {key}, {_describe(self.tensors[key])}, has no place in "
                    f"this program, expected only its {len(expected)} tensors"
                )
        regions: dict[Region, dict[str, Any]] = {}
        for region, name, _ in template.named_leaves():
            regions.setdefault(region, {})[name] = owned(self.tensors[_key(region, name)])
        return template.replace(regions)


def _key(region: Region, name: str) -> str:
    return f"{region.name}/{name}"


def _describe(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _digest(tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(f"{key} {_describe(tensors[key])}\n".encode())
        digest.update(np.ascontiguousarray(tensors[key]).tobytes())
    return digest.hexdigest()


def save_checkpoint(
    path: str | os.PathLike[str],
    state: ArrayState,
    *,
    epoch: int,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write a state to one file; a reader never sees half of it.

    Args:
        path: The file, replaced if it exists.
        state: All that lives from step to step: weights, moments, statistics, EMA, scalars.
        epoch: Epochs trained so far.
        extra: Further JSON values for the header.

    Returns:
        The path.

    Raises:
        ValueError: the state has been donated to a later step.
    """
    state.check_alive()
    tensors = {_key(region, name): np.array(value) for region, name, value in state.named_leaves()}
    header = {
        **(extra or {}),
        "format": FORMAT,
        "version": VERSION,
        "epoch": epoch,
        "sha256": _digest(tensors),
    }
    text = json.dumps(header, default=repr).encode()
    buffer = io.BytesIO()
    np.savez(buffer, **{_HEADER: np.frombuffer(text, np.uint8)}, **tensors)  # type: ignore[arg-type]
    target = Path(path)
    write_atomically(target, buffer.getvalue())
    return target


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint and verify its hash.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: it is not a checkpoint, is cut short, or its content does not fit its hash.
    """
    target = Path(path)
    try:
        with target.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            tensors = {key: archive[key] for key in archive.files}
        header = json.loads(tensors.pop(_HEADER).tobytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError) as error:
        size = target.stat().st_size
        raise FormatError(f"{target} ({size} bytes) is not a whole checkpoint: {error}") from error
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise FormatError(
            f"{target}: header says {header.get('format')!r} version {header.get('version')!r}, "
            f"expected {FORMAT!r} version {VERSION}"
        )
    digest = _digest(tensors)
    if digest != header["sha256"]:
        raise FormatError(
            f"{target}: content hashes to {digest}, expected {header['sha256']} from its header"
        )
    return Checkpoint(target, header, tensors)
