"""CIFAR binary, class folders and tars: round trips and damage; real data through DTS and back."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data_samples import encoded_noise, noise_dataset, real_data, smooth_picture

from renaissance.core.errors import FormatError
from renaissance.data import (
    ArrayDataset,
    DtsBlocks,
    FolderDataset,
    TarDataset,
    decode_all,
    load_cifar,
    load_mnist,
    read_cifar,
    read_dts,
    read_idx,
    write_cifar,
    write_dts,
    write_dts_blocks,
    write_idx,
)
from renaissance.data.cifar import COARSE
from renaissance.data.codec import decode, image_size
from renaissance.data.dts import map_dts


@pytest.fixture
def jpeg():
    pytest.importorskip("cv2")
    return pytest.importorskip("simplejpeg")


def make_folders(root: Path, jpeg, splits: tuple[str, ...] = ("train",)) -> Path:
    """Three classes with 3, 2 and 4 pictures of 8x10 pixels."""
    for split in splits:
        for name, count in (("cat", 3), ("ant", 2), ("dog", 4)):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                picture = smooth_picture(8, 10, 3, i + len(name) + ord(name[0]))
                (folder / f"{i:02}.jpg").write_bytes(jpeg.encode_jpeg(picture, quality=95))
    return root


# -- CIFAR --------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_round_trip(tmp_path: Path, classes: int) -> None:
    data = noise_dataset(5, 32, 32, 3, classes)
    write_cifar(tmp_path / "a.bin", data)
    back = read_cifar(tmp_path / "a.bin", classes=classes)
    np.testing.assert_array_equal(back.images, data.images)
    np.testing.assert_array_equal(back.labels, data.labels)


def test_cifar_layout_is_label_then_planes(tmp_path: Path) -> None:
    data = noise_dataset(2, 32, 32, 3, 100)
    write_cifar(tmp_path / "a.bin", data)
    record = (tmp_path / "a.bin").read_bytes()[: 2 + 3072]
    label = int(data.labels[0])
    assert record[:2] == bytes([COARSE[label], label])
    for plane in range(3):
        part = record[2 + 1024 * plane : 2 + 1024 * (plane + 1)]
        assert part == data.images[0, :, :, plane].tobytes()


def test_cifar_splits_by_their_usual_names(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    parts = [noise_dataset(2 + i, 32, 32, 3, seed=i) for i in range(6)]
    for i in range(5):
        write_cifar(folder / f"data_batch_{i + 1}.bin", parts[i])
    write_cifar(folder / "test_batch.bin", parts[5])
    train, val = load_cifar(tmp_path), load_cifar(folder, train=False)
    assert (len(train), len(val)) == (2 + 3 + 4 + 5 + 6, 7)
    np.testing.assert_array_equal(train.images[2:5], parts[1].images)
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3.bin"):
        load_cifar(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], "6145 bytes, expected a multiple of 3073 .* 1 whole records and 3072"),
        (lambda b: b + b"\0", "6147 bytes"),
        (lambda b: b"", "0 bytes"),
        (lambda b: bytes([10]) + b[1:], "label of sample 0 is 10, expected 0 to 9"),
    ],
)
def test_damaged_cifar(tmp_path: Path, change, message: str) -> None:
    write_cifar(tmp_path / "a.bin", noise_dataset(2, 32, 32, 3))
    (tmp_path / "a.bin").write_bytes(change((tmp_path / "a.bin").read_bytes()))
    with pytest.raises(FormatError, match=message):
        read_cifar(tmp_path / "a.bin")


# -- folders and tars ----------------------------------------------------------------------------


def test_a_folder_is_sorted_by_class_and_name(tmp_path: Path, jpeg) -> None:
    data = FolderDataset(make_folders(tmp_path, jpeg) / "train")
    assert data.class_names == ("ant", "cat", "dog")
    assert data.labels.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.where(2).endswith("train/cat/00.jpg")
    assert data.decode(2).shape == (8, 10, 3)
    grey = FolderDataset(tmp_path / "train", channels=1)
    assert grey.decode(2).shape == (8, 10, 1)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_reads_like_its_folder(tmp_path: Path, jpeg, mode: str) -> None:
    make_folders(tmp_path / "tree", jpeg, ("train", "test"))
    with tarfile.open(tmp_path / "a.tar", mode) as archive:
        archive.add(tmp_path / "tree", ".")
    data = TarDataset(tmp_path / "a.tar", prefix="train")
    folder = FolderDataset(tmp_path / "tree" / "train")
    assert data.class_names == folder.class_names
    np.testing.assert_array_equal(data.labels, folder.labels)
    assert [data.read(i) for i in range(9)] == [folder.read(i) for i in range(9)]
    with pytest.raises(FormatError, match=r"class folders in \['test', 'train'\], choose one"):
        TarDataset(tmp_path / "a.tar")
    with pytest.raises(FormatError, match="no pictures under 'val'"):
        TarDataset(tmp_path / "a.tar", prefix="val")


def test_what_is_no_folder_of_classes(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such directory"):
        FolderDataset(tmp_path / "none")
    with pytest.raises(FormatError, match="no folders in it"):
        FolderDataset(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(FormatError, match="1 folders but no .jpg"):
        FolderDataset(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"no tar at all")
    with pytest.raises(FormatError, match="not a file of a known format; expected a DTS file or a"):
        TarDataset(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("empty.txt"), io.BytesIO())
    with pytest.raises(FormatError, match="no .jpg, .jpeg or .png in it"):
        TarDataset(tmp_path / "b.tar")


# -- codecs --------------------------------------------------------------------------------------


def test_png_is_exact_and_jpeg_is_close(jpeg) -> None:
    cv2 = pytest.importorskip("cv2")
    picture = smooth_picture(20, 30, 3, 1)
    png = cv2.imencode(".png", picture[..., ::-1])[1].tobytes()
    assert image_size(png) == (20, 30)
    np.testing.assert_array_equal(decode(png), picture)
    packed = jpeg.encode_jpeg(picture, quality=95, colorsubsampling="444")
    assert np.abs(decode(packed).astype(int) - picture).mean() < 3
    assert decode(packed, 1).shape == decode(png, 1).shape == (20, 30, 1)


def test_a_grey_jpeg_has_the_declared_channels(jpeg) -> None:
    packed = jpeg.encode_jpeg(smooth_picture(9, 7, 1, 2), colorspace="GRAY", quality=95)
    colour = decode(packed, 3)
    assert colour.shape == (9, 7, 3)
    np.testing.assert_array_equal(colour[..., 0], colour[..., 2])


def test_headers_cannot_promise_more_than_their_bytes_hold(jpeg) -> None:
    cv2 = pytest.importorskip("cv2")
    packed = bytearray(jpeg.encode_jpeg(smooth_picture(16, 16, 3, 3)))
    frame = packed.index(b"\xff\xc0")
    packed[frame + 5 : frame + 9] = b"\xf0\0\xf0\0"
    with pytest.raises(FormatError, match="promises 61440x61440 pixels"):
        decode(bytes(packed))
    png = bytearray(cv2.imencode(".png", smooth_picture(4, 4, 3, 3))[1].tobytes())
    longer = bytearray(png)
    longer[33:37] = b"\xfd\xfd\x9d\xf5"  # the length of the chunk after the header
    with pytest.raises(FormatError, match="promises 4261256693 bytes at byte 33 of"):
        decode(bytes(longer))
    flipped = bytearray(png)
    flipped[45] ^= 1
    with pytest.raises(FormatError, match="checksum of chunk b'IDAT'"):
        decode(bytes(flipped))
    with pytest.raises(FormatError, match="it ends in a chunk"):
        decode(bytes(png[:-3]))
    png[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    with pytest.raises(FormatError, match="promises 2147483647x2147483647 pixels"):
        decode(bytes(png))
    with pytest.raises(FormatError, match="expected a JPEG or PNG"):
        decode(b"GIF89a")


# -- decoding whole sets, mapping, and the real data ----------------------------------------------


def test_decode_all_takes_pictures_of_one_size(tmp_path: Path, jpeg) -> None:
    data = decode_all(FolderDataset(make_folders(tmp_path, jpeg) / "train"))
    assert data.images.shape == (9, 8, 10, 3) and data.num_classes == 3
    with pytest.raises(FormatError, match=r"sample \d+ \(picture-\d+\) is \d+x\d+ but the first"):
        decode_all(encoded_noise(5))


def test_a_mapped_dts_is_the_same_without_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.dts"
    data = noise_dataset(9, 5, 4, 3)
    write_dts(path, data, is_training=True)
    mapped = map_dts(path)
    assert isinstance(mapped.images.base, np.memmap) or isinstance(mapped.images, np.memmap)
    np.testing.assert_array_equal(mapped.images, data.images)
    np.testing.assert_array_equal(mapped.labels, data.labels)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="truncated"):
        map_dts(path)


def unchanged_through_dts(tmp_path: Path, data: ArrayDataset) -> ArrayDataset:
    write_dts(tmp_path / "a.dts", data, is_training=True)
    return read_dts(tmp_path / "a.dts")


def test_real_mnist_through_dts_and_back_is_unchanged(tmp_path: Path) -> None:
    source = real_data("mnist")
    for train, prefix in ((True, "train"), (False, "t10k")):
        back = unchanged_through_dts(tmp_path, load_mnist(source, train=train))
        write_idx(tmp_path / "images", back.images[..., 0])
        write_idx(tmp_path / "labels", back.labels.astype(np.uint8))
        for name, kind in (("images", "images-idx3-ubyte.gz"), ("labels", "labels-idx1-ubyte.gz")):
            np.testing.assert_array_equal(
                read_idx(tmp_path / name), read_idx(source / f"{prefix}-{kind}")
            )
    assert load_mnist(source).labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_real_cifar_through_dts_and_binary_is_unchanged(tmp_path: Path, jpeg) -> None:
    archive = real_data("cifar10-jpeg") / "cifar10-jpeg.tar.gz"
    encoded = TarDataset(archive, prefix="test")
    assert (len(encoded), encoded.num_classes) == (10_000, 10)
    data = decode_all(encoded)
    back = unchanged_through_dts(tmp_path, data)
    write_cifar(tmp_path / "a.bin", back)
    raw = read_cifar(tmp_path / "a.bin")
    np.testing.assert_array_equal(raw.images, data.images)
    np.testing.assert_array_equal(raw.labels, data.labels)
    # the JPEGs themselves through blocks
    part = encoded
    part._members, part._bytes = part._members[:500], part._bytes[:500]
    part.labels = part.labels[:500]
    write_dts_blocks(tmp_path / "b.dts", part, is_training=False)
    blocks = DtsBlocks(tmp_path / "b.dts")
    blocks.verify()
    assert [blocks.read(i) for i in range(500)] == part._bytes
    blocks.close()
