"""Golden files keep their cases, and inputs drawn by name are the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from renaissance.core.errors import FormatError
from renaissance.testing import Golden, golden_normal, write_golden


def test_a_file_gives_back_its_cases(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    tensors = {"y": np.arange(6.0).reshape(2, 3), "dx": np.ones(2, np.float32)}
    write_golden(path, {"b case": ({"stride": 2, "x": (1, 2)}, tensors), "a": ({}, {})})
    cases = Golden.load(path)
    assert list(cases) == ["b case", "a"]
    case = cases["b case"]
    assert case.name == "b case"
    assert case.options == {"stride": 2, "x": [1, 2]}
    assert list(case.tensors) == ["y", "dx"]
    np.testing.assert_array_equal(case.tensors["y"], tensors["y"])
    assert case.tensors["dx"].dtype == np.float32


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, y=np.ones(2))
    with pytest.raises(FormatError, match=r"is \['y'\], expected an entry named 'cases'"):
        Golden.load(path)


def test_inputs_depend_on_the_name_alone_and_are_exact_in_single() -> None:
    x = golden_normal("conv/x", (3, 5))
    np.testing.assert_array_equal(x, golden_normal("conv/x", (3, 5)))
    np.testing.assert_array_equal(x.ravel()[:4], golden_normal("conv/x", (4,)))
    np.testing.assert_array_equal(x, x.astype(np.float32))
    assert (x != golden_normal("conv/w", (3, 5))).all()
    assert abs(golden_normal("large", (10_000,)).std() - 1) < 0.02


def test_golden_files_are_written_without_jax() -> None:
    code = "import sys, renaissance.testing.golden; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
