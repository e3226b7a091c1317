"""The examples run as they are, on settings a test can afford."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from renaissance.data import write_idx

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MNIST = Path(os.environ.get("RENAISSANCE_TEST_DATA", ROOT.parent / "shared" / "data")) / "mnist"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs an example as a user would, in an empty folder, and returns what it prints."""

    def run_example(name: str, *arguments: str) -> str:
        return output_of(name, *arguments, cwd=tmp_path)

    return run_example


def output_of(name: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def small_mnist(folder: Path, train: int = 1000, val: int = 400) -> Path:
    """The first digits of the real files, where they are; else blocks in their form."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", val)):
        labels = generator.integers(0, 10, count).astype(np.uint8)
        images = generator.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 4] += 150
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", labels)
    return folder


def test_mlp_mnist_trains_on_idx_files(run, tmp_path):
    folder = small_mnist(tmp_path / "mnist")
    text = run("mlp_mnist.py", "--data", str(folder), "--epochs", "2")
    assert "1,462,538" in text  # the four layers of the plan
    last = text.splitlines()[-1]
    assert last.startswith("best top-1 ")
    assert float(last.split()[2]) > 50
    assert (tmp_path / "runs" / "mlp_mnist" / "metrics.csv").exists()


def test_files_may_be_gzipped_or_not_and_pictures_distorted(run, tmp_path):
    folder = small_mnist(tmp_path / "mnist")
    packed = folder / "train-images-idx3-ubyte.gz"
    (folder / "train-images-idx3-ubyte").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    text = run("mlp_mnist.py", "--data", str(folder), "--epochs", "2", "--augment")
    assert text.splitlines()[-1].startswith("best top-1 ")


@pytest.mark.slow
@pytest.mark.skipif(
    "RENAISSANCE_TEST_DATA" not in os.environ or not MNIST.is_dir(),
    reason="takes a minute and a half: asked for by RENAISSANCE_TEST_DATA, where MNIST lies",
)
def test_mlp_mnist_passes_98_percent_within_five_epochs(run):
    text = run("mlp_mnist.py", "--data", str(MNIST), "--epochs", "5")
    assert float(text.splitlines()[-1].split()[2]) >= 98.0
