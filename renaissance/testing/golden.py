"""Golden files: results of an independent implementation, with the cases they belong to.

A golden file is an ``.npz`` that says by itself what was computed: every case has a name, a
dictionary of options and the resulting tensors. Inputs are not stored; both sides draw them with
:func:`golden_normal`, which gives the same bits everywhere.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from renaissance.core.errors import FormatError, fail
from renaissance.core.philox import normal


@dataclass(frozen=True)
class Golden:
    """One case of a golden file.

    Attributes:
        name: Unique in its file.
        options: What was computed; plain JSON values.
        tensors: The results, by name.
    """

    name: str
    options: dict[str, Any]
    tensors: dict[str, np.ndarray]

    @staticmethod
    def load(path: str | Path) -> dict[str, Golden]:
        """Read all cases of a file.

        Args:
            path: Written by :func:`write_golden`.

        Returns:
            Cases by name, in the order they were written.

        Raises:
            FormatError: not a golden file.
        """
        with np.load(path, allow_pickle=False) as file:
            if "cases" not in file.files:
                fail(FormatError, f"content of {path}", file.files[:4], "an entry named 'cases'")
            cases = json.loads(str(file["cases"]))
            return {
                name: Golden(
                    name,
                    case["options"],
                    {tensor: file[f"{name}|{tensor}"] for tensor in case["tensors"]},
                )
                for name, case in cases.items()
            }


def write_golden(
    path: str | Path, cases: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Write a golden file.

    Args:
        path: Ends in ``.npz``.
        cases: ``(options, tensors)`` by case name; options are plain JSON values. fp64 tensors are
            stored as they are given: round them to fp32 before, where that is enough.

    Raises:
        ValueError: options hold something JSON cannot express.
    """
    index = {
        name: {"options": dict(options), "tensors": list(tensors)}
        for name, (options, tensors) in cases.items()
    }
    arrays = {
        f"{name}|{tensor}": np.asarray(value)
        for name, (_, tensors) in cases.items()
        for tensor, value in tensors.items()
    }
    np.savez_compressed(path, cases=np.array(json.dumps(index)), **arrays)  # type: ignore[arg-type]


def golden_normal(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers that depend on a name alone, and are exact in fp32.

    Args:
        name: Such as ``"conv 3x3/x"``.
        shape: Any.

    Returns:
        fp64 array of fp32 values.
    """
    values = normal(zlib.crc32(name.encode()), prod(shape))
    return values.astype(np.float32).astype(np.float64).reshape(shape)
