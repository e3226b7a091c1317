"""Measuring and building plans, with a stand-in for cuDNN and the driver, in another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from renaissance.runtime import library

COMPILER = shutil.which("g++")
FAKE = Path(__file__).parents[1] / "emulation" / "fake_cudnn.cc"

if COMPILER is None or not library.status().loaded or Path("/dev/nvidia0").exists():
    pytest.skip("needs g++, the native library, and no driver", allow_module_level=True)

SCRIPT = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from renaissance.core.errors import NativeError
from renaissance.lowering.calls.targets import Convolution
from renaissance.runtime.convolution_choices import Choice, Choices
from renaissance.runtime.cudnn import Convolutions

def tried(name, half, limit):
    path = Path(sys.argv[1]) / name
    os.environ["FAKE_LOG"] = str(path) + ".log"
    found = Convolutions(0, "fake", Choices(path))
    one = Convolution("forward", half, half, (2, 9, 9, 16, 8, 5, 5, 3, 3, 2, 1, 1), limit)
    result = {"version": found.version}
    try:
        result["measured"] = [asdict(choice) for choice in found.measure(one)]
        again = Convolutions(0, "fake", Choices(path))
        result["same"] = found.plan(one) == again.plan(one)
        result["recorded"] = path.exists()
        found.build(one, Choice(99, (), 0, 0.0))
    except NativeError as error:
        result["error"] = str(error)
    return result

results = {
    "half": tried("half", 1, 1 << 20),
    "float": tried("float", 0, 1 << 20),
    "small": tried("small", 1, 63),
}
for times in ("30", "1000"):
    os.environ["FAKE_SLOW"] = times
    results["slow" + times] = tried("slow" + times, 1, 1 << 20)
os.environ["FAKE_FULL"] = "1"
results["full"] = tried("full", 1, 1 << 20)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fake")


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What every case came to, by its name."""
    place = folder / "libcudnn.so.9"
    command = [str(COMPILER), "-std=c++17", "-shared", "-fPIC", str(FAKE), "-o", str(place)]
    subprocess.run(command, check=True)
    (folder / "libcuda.so.1").symlink_to(place)  # one library, opened by two names
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "RENAISSANCE_CUDNN": str(place)}
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def log_of(folder: Path, name: str) -> list[str]:
    log = folder / f"{name}.log"
    return log.read_text().splitlines() if log.exists() else []


def engines(result: dict[str, Any]) -> list[int]:
    return [choice["engine"] for choice in result["measured"]]


def test_the_faster_of_the_deterministic_engines_that_fit_is_pinned(
    results: dict[str, Any], folder: Path
) -> None:
    result, log = results["half"], log_of(folder, "half")
    assert result["version"] == 91900
    assert engines(result) == [2, 4, 0, 5], "1 is not deterministic, 3 takes too much memory"
    first = result["measured"][0]
    assert (first["knobs"], first["workspace_bytes"], first["microseconds"]) == ([[7, 12]], 64, 500)
    assert result["same"] and result["recorded"]
    assert result["measured"][-1]["microseconds"] == 40_000, "told by one run alone"
    assert log.count("run 5") == 2 * 2, "two runs for each of two that measure"
    assert "run 1" not in log and "run 3" not in log
    assert log.count("handle") == 2, "one to build with, one to execute with"
    assert "cuDNN refuses this engine" in result["error"]


def test_what_takes_long_is_not_repeated(results: dict[str, Any], folder: Path) -> None:
    for times, runs in ((30, 2), (1000, 1)):
        assert engines(results[f"slow{times}"]) == [2, 4, 0, 5]
        log = log_of(folder, f"slow{times}")
        assert log.count("run 0") == 2 * runs, "for each of two that measure"


def test_floats_keep_off_tensor_cores(results: dict[str, Any]) -> None:
    assert engines(results["float"]) == [4, 0, 5]


def test_where_nothing_fits_the_workspace_it_is_said(results: dict[str, Any]) -> None:
    error = results["small"]["error"]
    assert "no deterministic engine for it: the workspace is too small" in error


def test_without_memory_to_measure_the_preferred_engine_is_taken_and_not_recorded(
    results: dict[str, Any], folder: Path
) -> None:
    result = results["full"]
    assert engines(result) == [2] and result["measured"][0]["microseconds"] == 0
    assert result["same"] and not result["recorded"]
    assert not any(line.startswith("run") for line in log_of(folder, "full"))
