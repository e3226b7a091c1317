"""A run's directory is its own."""

from __future__ import annotations

import json

import pytest

from renaissance.task.curve import draw_curve
from renaissance.task.metrics import EpochRecord
from renaissance.task.run_directory import RunDirectory


def test_a_second_run_of_a_name_gets_a_directory_of_its_own(tmp_path):
    paths = [RunDirectory.create(tmp_path / "runs", "digits").path.name for _ in range(3)]
    assert paths == ["digits", "digits-2", "digits-3"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b"])
def test_a_name_that_is_no_directory_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="run name is"):
        RunDirectory.create(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_the_configuration_is_json_whatever_is_in_it(tmp_path):
    directory = RunDirectory.create(tmp_path, "x")
    directory.write_config({"seed": 3, "optimizer": object})
    assert json.loads(directory.config.read_text())["seed"] == 3


def test_the_curve_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    record = EpochRecord(1, 2, 20, 1.0, 0.5, 0.9, 0.1, 100.0, 0.1, val_loss=0.9, val_top1=0.6)
    assert draw_curve([record], tmp_path / "curve.png", "digits")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert not draw_curve([], tmp_path / "none.png", "digits")
