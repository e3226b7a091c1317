"""The schedule command: the plot says what the schedule does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

from renaissance.algo.scheduler import CosineAnnealing, MultiStep
from renaissance.cli import schedule


def parse(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    schedule.add_parser(parser.add_subparsers())
    return parser.parse_args(["schedule", *line.split()])


def test_options_become_the_schedules_fields() -> None:
    line = "cosine --base-lr 0.1 --warmup 5 --warmup-start-factor 0.1 --eta-min 0.01 --by epoch"
    assert schedule.make_schedule(parse(line)) == CosineAnnealing(
        0.1, 0.01, warmup=5, warmup_start_factor=0.1, by="epoch"
    )
    line = "multi-step --base-lr 0.1 --milestones 30 60 80"
    assert schedule.make_schedule(parse(line)) == MultiStep(0.1, (30, 60, 80))


NEEDED = {"step": "--size 2", "multi-step": "--milestones 2 4", "exponential": "--gamma 0.9",
          "warm-restarts": "--t-0 2"}  # fmt: skip


@pytest.mark.parametrize("name", schedule.SCHEDULES)
def test_every_schedule_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"{name} --base-lr 0.1 --epochs 6 --steps-per-epoch 4 --width 50 --height 9"
    assert schedule.run(parse(f"{line} {NEEDED.get(name, '')}")) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(schedule.SCHEDULES[name].__name__)
    assert out[1].startswith("6 epochs of 4 steps; first rate 0.1, highest 0.1 from step 0, last ")
    assert len(out) == 3 + 9 + 2
    assert max(map(len, out[3:])) <= 50
    assert all(character.isascii() for row in out for character in row)


def test_the_plot_of_a_ramp() -> None:
    table = np.linspace(0, 1, 39, dtype=np.float32)
    lines = schedule.text_plot(table, 3, width=50, height=4)
    assert [line.split("|")[0].strip() for line in lines[:4]] == ["1", "0.667", "0.333", "0"]
    stars = [{i for i, c in enumerate(line[11:]) if c == "*"} for line in lines[:4]]
    assert stars[3] == set(range(7)) and stars[0] == set(range(32, 39))
    assert set.union(*stars) == set(range(39))
    assert lines[4] == " " * 10 + "+" + "-" * 39
    assert lines[5].split() == ["epoch", "0", "3"]


def test_a_drop_inside_a_column_is_a_line() -> None:
    table = np.array([1.0] * 390 + [0.0] * 10, np.float32)
    lines = schedule.text_plot(table, 1, width=30, height=5)
    assert all(line[11:].endswith("*") for line in lines[:5])


def test_a_single_step_and_a_rate_of_zero() -> None:
    lines = schedule.text_plot(np.zeros(1, np.float32), 1, width=30, height=2)
    assert lines[1] == "        0 |" + "*" * 19
    assert lines[0] == "        1 |"


def test_a_picture_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "lr.png"
    assert schedule.run(parse(f"cosine --base-lr 0.1 --epochs 3 --picture {path}")) == 0
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert str(path) in capsys.readouterr().out


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"lr.png needs matplotlib.*renaissance\[plot\]"):
        schedule.draw(np.ones(3, np.float32), 1, "t", Path("lr.png"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("step --base-lr 0.1", "--size is None, expected a value: step needs one"),
        ("cosine --base-lr 0.1 --gamma 3", "--gamma is 3.0, expected one of cosine's options: --b"),
        ("cosine --base-lr -1", "CosineAnnealing base_lr is -1.0"),
        ("cosine --base-lr 0.1 --warmup 100", "warmup is 100.0, expected at most the 90 epochs"),
        ("cosine --base-lr 0.1 --width 3", "width is 3"),
    ],
)
def test_errors_name_the_option(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        schedule.run(parse(line))


def test_an_unknown_schedule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("sawtooth --base-lr 0.1")
    assert "warm-restarts" in capsys.readouterr().err
