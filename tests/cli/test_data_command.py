"""``renaissance data``: every command on small data sets, and what goes wrong in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from renaissance import data
from renaissance.cli import main
from renaissance.cli.data_recipes import RECIPES, parse_transforms


def noise(n: int, h: int, w: int, c: int, classes: int = 10) -> data.ArrayDataset:
    draw = np.random.default_rng(n)
    images = draw.integers(0, 256, (n, h, w, c), np.uint8)
    return data.ArrayDataset(images, draw.integers(0, classes, n), classes, "noise/train")


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    folder = tmp_path / "mnist"
    for prefix, n in (("train", 30), ("t10k", 12)):
        part = noise(n, 28, 28, 1)
        data.write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", part.images[..., 0])
        data.write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", part.labels.astype(np.uint8))
    return folder


def test_info_and_verify(mnist: Path, capsys) -> None:
    assert main(["data", "info", str(mnist)]) == 0
    told = capsys.readouterr().out
    assert (
        "30 samples of 28x28x1" in told and "12 samples of 28x28x1" in told and "mean [0." in told
    )
    assert main(["data", "verify", str(mnist), "--split", "val"]) == 0
    assert capsys.readouterr().out == "val: 12 samples are sound\n"


def test_convert_to_dts_and_back_changes_nothing(mnist: Path, tmp_path: Path, capsys) -> None:
    packed, raw = tmp_path / "dts", tmp_path / "raw"
    assert main(["data", "convert", str(mnist), str(packed)]) == 0
    assert sorted(p.name for p in packed.iterdir()) == ["train.dts", "val.dts"]
    assert main(["data", "convert", str(packed), str(raw), "--to", "raw"]) == 0
    for file in mnist.iterdir():
        np.testing.assert_array_equal(data.read_idx(raw / file.name), data.read_idx(file))
    capsys.readouterr()
    assert main(["data", "info", str(packed / "val.dts")]) == 0
    told = capsys.readouterr().out
    assert "num_samples        12" in told and "crc32" in told


def test_convert_cifar_both_ways(tmp_path: Path) -> None:
    source = tmp_path / "cifar-10-batches-bin"
    for number in range(1, 6):
        data.write_cifar(source / f"data_batch_{number}.bin", noise(number + 1, 32, 32, 3))
    data.write_cifar(source / "test_batch.bin", noise(4, 32, 32, 3))
    assert main(["data", "convert", str(tmp_path), str(tmp_path / "dts")]) == 0
    assert main(["data", "convert", str(tmp_path / "dts"), str(tmp_path / "r"), "--to", "raw"]) == 0
    for train in (True, False):
        before, after = (data.load_cifar(p, train=train) for p in (tmp_path, tmp_path / "r"))
        np.testing.assert_array_equal(before.images, after.images)
        np.testing.assert_array_equal(before.labels, after.labels)


def test_convert_folders_to_blocks_and_back(tmp_path: Path, capsys) -> None:
    jpeg = pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    contents = []
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            folder = tmp_path / "tree" / split / name
            folder.mkdir(parents=True)
            for i in range(3):
                image = np.full((20 + i, 30, 3), 40 * i + 10, np.uint8)
                contents.append(jpeg.encode_jpeg(image))
                (folder / f"{i}.jpg").write_bytes(contents[-1])
    tree, packed, back = (str(tmp_path / name) for name in ("tree", "dts", "back"))
    assert main(["data", "verify", tree]) == 0
    assert main(["data", "convert", tree, packed]) == 0
    assert main(["data", "verify", packed]) == 0
    assert main(["data", "convert", packed, back, "--to", "raw"]) == 0
    found = sorted(Path(back).rglob("*.jpg"))
    assert len(found) == 12
    assert sorted(p.read_bytes() for p in found) == sorted(contents)
    # a damaged picture is named, and the whole is refused
    victim = tmp_path / "tree" / "val" / "bee" / "1.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    capsys.readouterr()
    assert main(["data", "verify", tree, "--split", "val"]) == 2
    told = capsys.readouterr().err
    assert f"sample 4 ({victim})" in told and "1 of 6 samples are damaged" in told


def test_show_writes_a_sheet(mnist: Path, tmp_path: Path) -> None:
    picture = tmp_path / "sheet.png"
    options = ["--recipe", "mnist", "--samples", "3", "--epochs", "4"]
    assert main(["data", "show", str(mnist), str(picture), *options]) == 0
    Image = pytest.importorskip("PIL.Image")
    with Image.open(picture) as sheet:
        assert sheet.size == (4 * (56 + 4), 3 * (56 + 4)) and sheet.mode == "L"
        pixels = np.asarray(sheet)
    assert (pixels[0] == 128).all() and pixels.std() > 20


def test_bench_measures_each_number_of_workers(mnist: Path, capsys) -> None:
    options = ["--recipe", "mnist", "--seconds", "0.05", "--workers", "1", "2", "--batch", "10"]
    assert main(["data", "bench", str(mnist), *options]) == 0
    told = capsys.readouterr().out
    assert told.count("samples/s") == 2 and "2 workers: " in told


def test_transforms_from_text() -> None:
    text = "Pad(4, 'reflect') RandomCrop((32, 30)), RandomErasing(p=0.3, scale=(0.1, 0.2))"
    expected = (
        data.Pad(4, "reflect"),
        data.RandomCrop((32, 30)),
        data.RandomErasing(0.3, (0.1, 0.2)),
    )
    assert parse_transforms(text) == expected
    for recipe in RECIPES.values():
        assert parse_transforms(" ".join(map(repr, recipe.transforms))) == recipe.transforms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Crop(3)", "transform is 'Crop', expected one of CenterCrop"),
        ("RandomCrop", "expected a call such as"),
        ("__import__('os').system('true')", "--transforms"),
        ("Pad(open('x'))", "malformed"),
        ("Pad(-1)", "Pad padding is -1"),
        ("Pad(", "--transforms"),
        ("Pad(paddin=1)", "paddin"),
    ],
)
def test_text_that_is_no_transform(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_transforms(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "/nowhere"], "/nowhere: no such file or directory"),
        (["info", "."], "holds nothing known"),
        (["info", "notes"], "notes: not a file of a known format; expected a DTS file or a tar"),
        (["show", "MNIST", "x.png", "--transforms", "RandomCrop(99)"], "99x99 pixels"),
    ],
)
def test_what_goes_wrong_is_one_sentence(arguments, message, mnist, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("no pictures here")
    arguments = [str(mnist) if a == "MNIST" else a for a in arguments]
    assert main(["data", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
