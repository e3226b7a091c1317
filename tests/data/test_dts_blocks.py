"""DTS of blocks: every byte kept, the layout, and damage."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from data_samples import encoded_noise, noise_dataset, smooth_picture

from renaissance.core.errors import FormatError
from renaissance.data import (
    DtsBlocks,
    write_dts,
    write_dts_blocks,
)
from renaissance.data.codec import image_size


@pytest.fixture
def jpeg():
    pytest.importorskip("cv2")
    return pytest.importorskip("simplejpeg")


def test_blocks_keep_every_byte(tmp_path: Path, jpeg) -> None:
    data = encoded_noise(40)
    header = write_dts_blocks(tmp_path / "a.dts", data, is_training=True, bytes_per_block=4096)
    assert header.num_blocks > 3 and header.compression_ratio == 1.0
    back = DtsBlocks(tmp_path / "a.dts")
    assert [back.read(i) for i in range(40)] == data.content
    np.testing.assert_array_equal(back.labels, data.labels)
    assert (back.num_classes, back.channels, back.name) == (10, 3, "imagenet/train")
    assert sum(back.block_sizes) == 40 and max(back.block_sizes) == header.max_per_block
    assert header.max_area == max(h * w for h, w in map(image_size, data.content))
    back.verify()
    back.close()


def test_block_layout_byte_by_byte(tmp_path: Path, jpeg) -> None:
    data = encoded_noise(3)
    write_dts_blocks(tmp_path / "a.dts", data, is_training=False)
    content = (tmp_path / "a.dts").read_bytes()
    area = 16 << 20
    assert len(content) == 2 * area
    assert content[:4] == b".DTS" and not any(content[144:area])
    assert struct.unpack_from("<I", content, 80) == (area,)
    block = content[area:]
    assert struct.unpack_from("<4sII", block) == (b"LV0B", 0, 3)
    table = struct.unpack_from("<3I3I3i", block, 12)
    sizes = [len(picture) for picture in data.content]
    assert list(table[:3]) == [48, 48 + sizes[0], 48 + sizes[0] + sizes[1]]
    assert list(table[3:6]) == sizes and list(table[6:]) == [0, 1, 2]
    assert block[48:][: sum(sizes)] == b"".join(data.content)
    assert struct.unpack_from("<I", content, 140) == (zlib.crc32(block),)


def test_higher_levels_are_smaller_and_still_pictures(tmp_path: Path, jpeg) -> None:
    data = encoded_noise(10)
    data.content = [jpeg.encode_jpeg(smooth_picture(60, 60, 3, i), quality=99) for i in range(10)]
    ratios = []
    for level in range(4):
        path = tmp_path / f"{level}.dts"
        ratios.append(
            write_dts_blocks(
                path, data, is_training=True, level=level, bytes_per_block=1 << 16
            ).compression_ratio
        )
        back = DtsBlocks(path)
        assert back.header.compress_level == level
        for i in range(10):
            error = np.abs(back.decode(i).astype(int) - data.decode(i)).mean()
            assert error < 6
        back.close()
    assert ratios[0] == 1 and ratios[0] > ratios[1] > ratios[2] > ratios[3]


def test_a_picture_too_large_for_a_block_is_named(tmp_path: Path, jpeg) -> None:
    data = encoded_noise(3)
    data.content[1] = jpeg.encode_jpeg(noise_dataset(1, 80, 80, 3).images[0], quality=100)
    with pytest.raises(FormatError, match=r"sample 1 \(picture-1\) has \d+ bytes, a block of 4096"):
        write_dts_blocks(tmp_path / "a.dts", data, is_training=True, bytes_per_block=4096)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (0, b"X", "magic is b'XDTS'"),
        (52, b"\x07", "its blocks hold 6 samples, expected 7"),
        (64, b"\x09", "payload bytes after"),
        (28, b"\x05", "label of sample 5 is 5, expected 0 to 4"),
        (4096, b"X", "block 0 begins with b'XV0B'"),
        (4100, b"\x01", "block 0 has id 1"),
        (4104, b"\xff\xff", "claims 65535 samples"),
        (4108, b"\xff\xff", "sample 0 lies at 65535"),
        (4108, b"\x00", "expected inside 84 to 4096"),
    ],
)
def test_damaged_blocks_say_what_is_wrong(tmp_path, jpeg, at, new, message) -> None:
    path = tmp_path / "a.dts"
    data = encoded_noise(6)
    data.content = [c[:20] for c in data.content]
    data.content = [jpeg.encode_jpeg(smooth_picture(4, 4, 3, i), quality=20) for i in range(6)]
    write_dts_blocks(path, data, is_training=True, bytes_per_block=4096 * 2)
    content = bytearray(path.read_bytes())
    if at >= 4096:
        at += 4096
        message = message.replace("84 to 4096", "84 to 8192")
    content[at : at + len(new)] = new
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        DtsBlocks(path)
    assert str(path) in str(caught.value)


def test_truncated_blocks_and_a_wrong_checksum(tmp_path: Path, jpeg) -> None:
    path = tmp_path / "a.dts"
    write_dts_blocks(path, encoded_noise(6), is_training=True, bytes_per_block=8192)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(FormatError, match=f"truncated, {len(content) - 1} bytes .* {len(content)}"):
        DtsBlocks(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FormatError, match="too long"):
        DtsBlocks(path)
    path.write_bytes(content[:-1] + b"\1")
    data = DtsBlocks(path)
    with pytest.raises(FormatError, match="checksum of"):
        data.verify()
    data.close()
    write_dts(path, noise_dataset(2, 3, 3, 1), is_training=True)
    with pytest.raises(FormatError, match="0 blocks of 0 bytes"):
        DtsBlocks(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        DtsBlocks(tmp_path / "nowhere")
