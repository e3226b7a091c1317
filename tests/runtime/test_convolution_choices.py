"""The file of chosen engines: read, shared, damaged, shipped."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from renaissance.runtime.convolution_choices import FILE_NAME, FILE_VARIABLE, Choice, Choices

GROUP, NAME = "NVIDIA H200, cuDNN 91900", "forward fp16 2x9x8x6 to 5x4x9"
CHOICE = Choice(38, ((2, 3), (4, -1)), 1024, 12.5)


def test_a_line_of_a_measurement() -> None:
    assert Choice.of_line("38 1024 12.50 2=3 4=-1") == CHOICE
    assert Choice.of_line("0 0 1.00") == Choice(0, (), 0, 1.0)


def test_a_choice_lasts_and_another_groups_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "made" / FILE_NAME
    Choices(path).put(GROUP, NAME, CHOICE)
    again = Choices(path)
    assert again.get(GROUP, NAME) == CHOICE
    assert again.get("another device", NAME) is None
    assert again.get(GROUP, "another convolution") is None


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', '{"a": {"b": {"engine": 1}}}'])
def test_a_damaged_file_is_absent_and_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(content)
    damaged = Choices(path)
    assert damaged.get("a", "b") is None and damaged.get(GROUP, NAME) is None
    damaged.put(GROUP, NAME, CHOICE)
    assert Choices(path).get(GROUP, NAME) == CHOICE


def test_one_damaged_entry_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    held = {GROUP: {NAME: CHOICE.as_json(), "other": {**CHOICE.as_json(), "knobs": [[1]]}}}
    path.write_text(json.dumps(held))
    choices = Choices(path)
    assert choices.get(GROUP, NAME) == CHOICE
    assert choices.get(GROUP, "other") is None


def test_writers_keep_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    writers = [Choices(path) for _ in range(8)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda i: writers[i].put(GROUP, f"conv{i}", CHOICE), range(8)))
    held = Choices(path)
    assert all(held.get(GROUP, f"conv{i}") == CHOICE for i in range(8))
    assert sorted(p.name for p in tmp_path.iterdir()) == [FILE_NAME, f"{FILE_NAME}.lock"]


def test_where_nothing_can_be_written_a_choice_lasts_as_long_as_the_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    choices = Choices(tmp_path / "file" / FILE_NAME)
    choices.put(GROUP, NAME, CHOICE)
    assert choices.get(GROUP, NAME) == CHOICE


def test_a_shipped_file_is_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "shipped.json"))
    Choices(tmp_path / "shipped.json").put(GROUP, NAME, CHOICE)
    assert Choices().get(GROUP, NAME) == CHOICE
