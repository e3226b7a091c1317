"""The README is a promise: everything it shows is run here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+|\b[0-9a-f]{16}\b")


def blocks(language: str) -> list[str]:
    return [body for found, body in BLOCKS if found == language]


def test_the_example_is_the_file() -> None:
    assert blocks("python")[0] == (ROOT / "examples" / "functional.py").read_text()


def test_the_example_prints_what_is_shown(compiling_anew: dict[str, str]) -> None:
    command = [sys.executable, ROOT / "examples" / "functional.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=compiling_anew)
    assert done.returncode == 0, done.stderr
    shown = blocks("text")[0]
    # the words must be equal; last digits, and with them the hash, depend on the processor
    assert NUMBER.sub("#", done.stdout) == NUMBER.sub("#", shown)
    ours, theirs = (re.findall(r"top-1 (\d+\.\d+)", text)[-1] for text in (done.stdout, shown))
    assert abs(float(ours) - float(theirs)) < 1.0
    assert float(ours) >= 97.0


def test_the_layer_from_outside_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    from renaissance.graph import registry
    from renaissance.lowering import layers  # noqa: F401  fills the table that is copied below
    from renaissance.lowering import registry as lowerings

    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    monkeypatch.setattr(lowerings, "_LOWERINGS", dict(lowerings._LOWERINGS))
    scope: dict = {"__name__": "readme"}
    monkeypatch.setitem(sys.modules, "readme", type(sys)("readme"))
    exec(compile(blocks("python")[1], "README.md", "exec"), scope)
    rn = scope["rn"]
    program = rn.compile(scope["model"], (4, 4, 1), 16, amp=True, lowering="xla")
    state = program.init(0)
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((16, 4, 4, 1)).astype(np.float32), rng.integers(0, 10, 16)
    losses = []
    for _ in range(20):
        state, metrics = program.train_step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.7 * losses[0]
    assert (program.params(state)["prelu1.slope"] != 1).any()


def commands() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.split("#")[0].strip() for line in lines if line.startswith("renaissance ")]


@pytest.mark.parametrize("command", sorted({c.split()[1] for c in commands()}))
def test_every_command_exists(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "renaissance", command, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    known = set(re.findall(r"--[\w-]+", done.stdout))
    for line in commands():
        if line.split()[1] == command:
            assert set(re.findall(r"--[\w-]+", line)) <= known, line


@pytest.mark.parametrize("command", [c for c in commands() if "show" in c or "schedule" in c])
def test_commands_that_need_no_data_run(command: str) -> None:
    words = command.split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "renaissance", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 5


def test_every_room_of_the_map_is_there() -> None:
    rooms = set(re.findall(r"`(renaissance/\w+)`", TEXT.split("## The rooms")[1]))
    for room in rooms:
        assert (ROOT / room).exists() or (ROOT / f"{room}.py").exists(), room
    packages = {
        f"renaissance/{path.name}"
        for path in (ROOT / "renaissance").iterdir()
        if (path / "__init__.py").exists()
    }
    assert packages <= rooms


def test_every_make_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    assert targets == ["train", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
