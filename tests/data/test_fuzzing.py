"""Damaged files of every format are read or refused, never worse."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("simplejpeg")
pytest.importorskip("cv2")

from fuzzing import formats, fuzz  # noqa: E402

KINDS = [
    "idx",
    "idx.gz",
    "dts",
    "dts mapped",
    "cifar",
    "dts blocks",
    "tar",
    "tar.gz",
    "jpeg",
    "png",
]


@pytest.mark.parametrize("kind", KINDS)
def test_mutations_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    found = formats(tmp_path)
    assert list(found) == KINDS
    content, reader = found[kind]
    path = tmp_path / "whole"
    path.write_bytes(content)
    reader(path)
    read, refused = fuzz(content, reader, tmp_path, 150, seed=1)
    assert refused > 30


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_is_refused_or_read(kind: str, tmp_path: Path) -> None:
    content, reader = formats(tmp_path)[kind]
    path = tmp_path / "cut"
    lengths = range(0, len(content), max(1, len(content) // 60))
    from renaissance.core.errors import FormatError

    for length in lengths:
        path.write_bytes(content[:length])
        try:
            reader(path)
            assert kind in ("tar", "tar.gz", "cifar"), f"{length} of {len(content)} bytes passed"
        except FormatError as error:
            assert str(error)
