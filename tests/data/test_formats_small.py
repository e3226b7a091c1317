"""IDX and small DTS: what is written is read back, and what is damaged says so."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from renaissance.core.errors import FormatError
from renaissance.data import (
    ArrayDataset,
    load_digits,
    load_idx,
    load_mnist,
    read_dts,
    read_idx,
    write_dts,
    write_idx,
)
from renaissance.data.dts import read_dts_header
from renaissance.data.dts_header import USED_BYTES, DtsHeader


def pictures(n: int = 7, h: int = 5, w: int = 6, c: int = 1, classes: int = 10) -> ArrayDataset:
    draw = np.random.default_rng(n * 1000 + h * 100 + w * 10 + c)
    images = draw.integers(0, 256, (n, h, w, c), np.uint8)
    return ArrayDataset(images, draw.integers(0, classes, n), classes, "toy/train")


def same(a: ArrayDataset, b: ArrayDataset) -> bool:
    return (
        np.array_equal(a.images, b.images)
        and np.array_equal(a.labels, b.labels)
        and a.num_classes == b.num_classes
    )


@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 5), (1, 7, 1, 3), (0, 4, 4)])
def test_idx_round_trip(tmp_path: Path, shape: tuple[int, ...], name: str) -> None:
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    write_idx(tmp_path / name, array)
    np.testing.assert_array_equal(read_idx(tmp_path / name), array)


def test_idx_layout_is_big_endian_magic_sizes_elements(tmp_path: Path) -> None:
    write_idx(tmp_path / "a", np.arange(6, dtype=np.uint8).reshape(2, 3))
    expected = b"\0\0\x08\x02" + struct.pack(">II", 2, 3) + bytes(range(6))
    assert (tmp_path / "a").read_bytes() == expected


def test_content_decides_about_gzip_not_the_name(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    write_idx(tmp_path / "raw", array)
    raw = (tmp_path / "raw").read_bytes()
    (tmp_path / "raw.gz").write_bytes(raw)
    (tmp_path / "packed-named-raw").write_bytes(gzip.compress(raw))
    np.testing.assert_array_equal(read_idx(tmp_path / "raw.gz"), array)
    np.testing.assert_array_equal(read_idx(tmp_path / "packed-named-raw"), array)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], "truncated, 27 bytes where its header promises 28"),
        (lambda b: b[:3], "truncated, 3 bytes where the magic takes 4"),
        (lambda b: b[:9], "truncated, 9 bytes where the header takes 16"),
        (lambda b: b + b"xyz", "too long, 31 bytes where its header promises 28"),
        (lambda b: b"\0\0\x0d\x03" + b[4:], "magic is 0x00000d03, expected 0x0000080n"),
        (lambda b: b"\0\0\x08\x05" + b[4:], "magic is 0x00000805"),
        (lambda b: b"PK" + b[2:], "magic is 0x504b0803"),
    ],
)
def test_a_damaged_idx_names_sizes(tmp_path, change, message, packed) -> None:
    path = tmp_path / "a"
    write_idx(path, np.zeros((3, 2, 2), np.uint8))
    content = change(path.read_bytes())
    path.write_bytes(gzip.compress(content) if packed else content)
    if not packed and message.startswith("truncated, 27"):
        message = "its header promises 28 bytes but the file can hold at most 27"
    with pytest.raises(FormatError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_header_cannot_make_us_allocate_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\0\0\x08\x03" + b"\xff" * 12 + b"abc")
    with pytest.raises(FormatError, match="promises .* the file can hold at most 19"):
        read_idx(path)


def test_a_cut_gzip_stream(tmp_path: Path) -> None:
    write_idx(tmp_path / "a.gz", np.random.default_rng(0).integers(0, 256, (9, 9, 9), np.uint8))
    whole = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(whole[:-20])
    with pytest.raises(FormatError, match="damaged gzip stream"):
        read_idx(tmp_path / "a.gz")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no-dir: no such directory"):
        load_mnist(tmp_path / "no-dir")
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte.gz, train-images-idx3"):
        load_mnist(tmp_path)
    with pytest.raises(FormatError, match="is a directory"):
        read_idx(tmp_path)


def test_a_pair_of_idx_files_must_agree(tmp_path: Path) -> None:
    write_idx(tmp_path / "images", np.zeros((3, 2, 2), np.uint8))
    write_idx(tmp_path / "labels", np.array([0, 1], np.uint8))
    with pytest.raises(FormatError, match=r"holds 3 images but .* holds 2 labels"):
        load_idx(tmp_path / "images", tmp_path / "labels")
    write_idx(tmp_path / "labels", np.array([0, 10, 11], np.uint8))
    with pytest.raises(FormatError, match=r"label of sample 1 is 10, expected 0 to 9 \(2 of 3"):
        load_idx(tmp_path / "images", tmp_path / "labels")
    with pytest.raises(FormatError, match="1 dimensions, expected 3 or 4"):
        load_idx(tmp_path / "labels", tmp_path / "labels")
    with pytest.raises(FormatError, match=r"3 dimensions, expected 1 \(labels\)"):
        load_idx(tmp_path / "images", tmp_path / "images")
    assert len(load_idx(tmp_path / "images", tmp_path / "labels", num_classes=12)) == 3


@pytest.mark.parametrize("c", [1, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("is_training", [True, False])
def test_dts_round_trip(tmp_path: Path, n: int, c: int, is_training: bool) -> None:
    dataset = pictures(n=n, c=c)
    write_dts(tmp_path / "a.dts", dataset, is_training=is_training)
    back = read_dts(tmp_path / "a.dts")
    assert same(back, dataset)
    assert back.name == ("toy/train" if is_training else "toy/val")


def test_dts_layout_byte_by_byte(tmp_path: Path) -> None:
    dataset = pictures(n=2, h=3, w=5, c=1, classes=7)
    write_dts(tmp_path / "a.dts", dataset, is_training=True, dataset_type="MNIST")
    content = (tmp_path / "a.dts").read_bytes()
    assert content[:16] == b".DTS\1\0\0\0MNIST\0\0\0"
    assert struct.unpack_from("<4I", content, 16) == (1, 0, 0, 7)
    assert content[32:36] == b"NHWC"
    assert struct.unpack_from("<3I", content, 36) == (5, 3, 1)
    assert content[48:52] == b"GRAY"
    assert struct.unpack_from("<5I", content, 52) == (2, 1, 0, 0, 0)
    assert struct.unpack_from("<Q", content, 72) == (2 + 30,)
    assert struct.unpack_from("<I", content, 80) == (256,)
    assert len(content) == 256 + 32
    assert content[USED_BYTES:256] == bytes(256 - USED_BYTES)
    assert content[256:258] == dataset.labels.astype(np.uint8).tobytes()
    assert content[258:] == dataset.images.tobytes()
    assert struct.unpack_from("<I", content, 140) == (zlib.crc32(content[256:]),)


def test_dts_header_packs_every_field() -> None:
    header = DtsHeader(
        *("CIFAR10", 1, 2, 1, 10, 33, 31, 3, "RGB", 5, 4, 3, 2, 1, 2**40, 256, 2**41, 6, 7, 8, 9),
        *(10, 0.5, (0.125, 0.25, 0.5), (1.0, 2.0, 4.0), 2**32 - 1),
    )
    assert len(header.pack()) == USED_BYTES
    assert DtsHeader.unpack(header.pack(), "x") == header


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], "header promises 290 bytes but the file can hold at most 289"),
        (lambda b: b[:200], "truncated, 200 bytes where the header takes 256"),
        (lambda b: b[:100], "truncated, 100 bytes where a DTS header takes 144"),
        (lambda b: b + b"\0", "too long, 291 bytes where its header promises 290"),
        (lambda b: b".DTX" + b[4:], "magic is b'.DTX', expected b'.DTS'"),
        (lambda b: b[:4] + b"\2" + b[5:], "version 2.0.0.0, expected 1.x"),
        (lambda b: b[:32] + b"NCHW" + b[36:], "layout is b'NCHW'"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum of 34 payload bytes is"),
        (lambda b: b[:52] + b"\3" + b[53:], "header gives 34 payload bytes, but 3 samples"),
        (lambda b: b[:64] + b"\1" + b[65:], "1 blocks and a header of 256 bytes"),
        (lambda b: b[:36] + b"\0" + b[37:], r"pictures of \(4, 0, 1\)"),
    ],
)
def test_a_damaged_dts_says_what_is_wrong(tmp_path, change, message) -> None:
    path = tmp_path / "a.dts"
    write_dts(path, pictures(n=2, h=4, w=4, c=1), is_training=True)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FormatError, match=message) as caught:
        read_dts(path)
    assert str(path) in str(caught.value)


def test_dts_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="2 channels"):
        write_dts(tmp_path / "a", pictures(c=2), is_training=True)
    with pytest.raises(FormatError, match="300 classes, expected at most 256"):
        write_dts(tmp_path / "a", pictures(classes=300), is_training=True)
    assert not list(tmp_path.iterdir())


def test_the_digits_ship_with_the_package() -> None:
    train, val = load_digits()
    assert (len(train), len(val)) == (1437, 360)
    assert train.image_shape == val.image_shape == (8, 8, 1)
    assert train.num_classes == 10
    assert np.bincount(val.labels).min() >= 35
    assert np.bincount(train.labels).min() >= 139
    # 17 grey levels, stretched to the full range
    assert np.unique(train.images).size == 17
    assert (train.images.min(), train.images.max()) == (0, 255)
    # no picture is in both splits
    seen = {picture.tobytes() for picture in train.images}
    assert not any(picture.tobytes() in seen for picture in val.images)
    header = read_dts_header(Path(__file__).parents[2] / "renaissance/data/digits/train.dts")
    assert (header.dataset_type, header.num_samples) == ("DIGITS", 1437)


def test_the_digits_have_the_statistics_they_are_normalised_with() -> None:
    from renaissance.data import DIGITS

    train, _ = load_digits()
    assert abs(train.images.mean() / 255 - DIGITS.mean[0]) < 1e-4
    assert abs(train.images.std() / 255 - DIGITS.std[0]) < 1e-4
