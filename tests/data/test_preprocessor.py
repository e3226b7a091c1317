"""The preprocessor: a chain of settings, one commit, then loaders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_samples import encoded_noise, noise_dataset

from renaissance.core.errors import FormatError, PhaseError
from renaissance.data import (
    MNIST,
    NO_NORM,
    Pad,
    Preprocessor,
    PreprocessorConfig,
    RandomCrop,
    RandomResizedCrop,
    catalog,
    loader,
    write_dts,
    write_dts_blocks,
    write_idx,
)


def mnist_folder(folder: Path, n: int = 30) -> Path:
    for prefix, count in (("train", n), ("t10k", n // 2)):
        data = noise_dataset(count, 28, 28, 1)
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", data.images[..., 0])
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", data.labels.astype(np.uint8))
    return folder


def test_the_digits_need_no_path() -> None:
    data = Preprocessor().dataset("digits").commit()
    assert (len(data.train), len(data.val), data.num_classes) == (1437, 360, 10)
    images, labels = next(iter(data.train_loader(64, seed=1)))
    assert images.shape == (64, 8, 8, 1) and labels.shape == (64,)
    assert abs(images.mean()) < 0.1 and abs(images.std() - 1) < 0.1


def test_settings_reach_the_loaders(tmp_path: Path) -> None:
    data = (
        Preprocessor()
        .dataset("mnist", mnist_folder(tmp_path))
        .train_transforms(Pad(2), RandomCrop(28))
        .val_transforms(Pad(1))
        .preprocess_workers(3)
        .load_workers(2)
        .drop_last()
        .cpu_binding()
        .fully_mode()
        .commit()
    )
    train, val = data.train_loader(8, seed=5, dtype=np.float16, channels=4), data.val_loader(8)
    assert train.transforms == (Pad(2), RandomCrop(28)) and train.normalization == MNIST
    assert (train.image_shape, val.image_shape) == ((28, 28, 4), (30, 30, 1))
    assert (len(train), len(val)) == (3, 2)
    assert train.shuffle and not val.shuffle and train.preparation.workers == 3
    direct = loader(
        data.train, batch_size=8, shuffle=True, seed=5, drop_last=True, dtype=np.float16,
        channels=4, transforms=(Pad(2), RandomCrop(28)), normalization="MNIST",
    )  # fmt: skip
    for (a, b), (c, d) in zip(train.batches(2), direct.batches(2), strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)


def test_a_chosen_normalisation_wins(tmp_path: Path) -> None:
    data = Preprocessor().dataset("mnist", mnist_folder(tmp_path)).normalization("NO_NORM").commit()
    assert data.train_loader(4).normalization == NO_NORM


def test_one_way_through_its_life(tmp_path: Path) -> None:
    data = Preprocessor()
    with pytest.raises(ValueError, match="dataset is None"):
        data.commit()
    data.dataset("mnist", tmp_path)
    with pytest.raises(PhaseError, match="train comes too early: call commit"):
        data.train_loader(4)
    with pytest.raises(FileNotFoundError, match="t10k-images"):
        data.commit()
    mnist_folder(tmp_path)
    data.shuffle(False).commit()  # a failed commit leaves it open
    with pytest.raises(PhaseError, match="drop_last comes too late"):
        data.drop_last()
    with pytest.raises(PhaseError, match="commit comes too late"):
        data.commit()


@pytest.mark.parametrize("fully", [True, False])
def test_dts_files_instead_of_the_originals(tmp_path: Path, fully: bool) -> None:
    for split, n in (("train", 20), ("val", 10)):
        dataset = noise_dataset(n, 28, 28, 1)
        write_dts(tmp_path / f"{split}.dts", dataset, is_training=split == "train")
    data = Preprocessor().dataset("mnist", tmp_path).using_dts_format().fully_mode(fully).commit()
    base = data.train.images
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) is not fully
    images, _ = next(iter(data.train_loader(20)))
    whole = loader(noise_dataset(20, 28, 28, 1), batch_size=20, shuffle=True, normalization=MNIST)
    np.testing.assert_array_equal(images, next(iter(whole))[0])


def test_partial_and_full_mode_of_encoded_pictures_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("cv2")
    for split in ("train", "val"):
        write_dts_blocks(
            tmp_path / f"{split}.dts", encoded_noise(30), is_training=split == "train",
            bytes_per_block=8192,
        )  # fmt: skip
    streams = []
    for fully in (True, False):
        data = Preprocessor().dataset("imagenet", tmp_path).using_dts_format().fully_mode(fully)
        data.train_transforms(RandomResizedCrop(16)).load_workers(2).commit()
        with data.train_loader(7, seed=3) as batches:
            streams.append([images.tobytes() for _ in range(2) for images, _ in batches])
        data.train.close()
    assert streams[0] == streams[1]
    assert len(streams[0]) == 10


def test_the_record_is_frozen_and_printable() -> None:
    config = Preprocessor().dataset("cifar10", "x").train_transforms(Pad(4)).config
    assert config == PreprocessorConfig("cifar10", "x", train_transforms=(Pad(4),))
    assert config.as_dict()["train_transforms"] == [repr(Pad(4))]
    with pytest.raises(AttributeError):
        config.name = "mnist"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda p: p.dataset("mnits"), ValueError, "dataset is 'mnits', expected one of digits"),
        (lambda p: p.dataset("mnist").commit(), ValueError, "path of mnist is None"),
        (lambda p: p.shuffle(1), TypeError, "shuffle is 1, expected True or False"),
        (lambda p: p.preprocess_workers(0), ValueError, "preprocess_workers is 0"),
        (lambda p: p.color_channels(2), ValueError, "color_channels is 2, expected 1 or 3"),
        (lambda p: p.train_transforms("flip"), TypeError, "transform 0 is 'flip'"),
        (lambda p: p.normalization("IMGNET"), ValueError, "normalization is 'IMGNET'"),
        (lambda p: p.dataset("folder", "/nowhere").commit(), FileNotFoundError, "/nowhere"),
    ],
)
def test_wrong_settings_fail_at_once(call, kind, message) -> None:
    with pytest.raises(kind, match=message):
        call(Preprocessor())


def test_a_damaged_file_stops_the_commit(tmp_path: Path) -> None:
    mnist_folder(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x1e")
    with pytest.raises(FormatError, match="train-labels-idx1-ubyte: truncated"):
        Preprocessor().dataset("mnist", tmp_path).commit()


def test_fashion_mnist_is_found_where_debian_installs_it(tmp_path: Path, monkeypatch) -> None:
    assert str(catalog.DEBIAN_FASHION) == "/usr/share/datasets/fashion-mnist"
    monkeypatch.setattr(catalog, "DEBIAN_FASHION", mnist_folder(tmp_path))
    data = Preprocessor().dataset("Fashion-MNIST").commit()
    assert (len(data.train), data.train.name) == (30, "fashion/train")
    monkeypatch.setattr(catalog, "DEBIAN_FASHION", tmp_path / "not-installed")
    with pytest.raises(ValueError, match="path of fashion_mnist is None"):
        Preprocessor().dataset("fashion_mnist").commit()
