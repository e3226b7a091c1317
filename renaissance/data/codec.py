"""JPEG and PNG to pixels and back, through libjpeg-turbo (simplejpeg) and OpenCV.

Headers are read first: a file that claims more pixels than its bytes could ever hold is refused
before memory is taken for them.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from functools import cache
from types import ModuleType

import numpy as np

from renaissance.core.errors import FormatError

JPEG_MAGIC = b"\xff\xd8"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
# One bit per 8x8 block is the least a JPEG of flat colour takes; deflate expands by at most 1032.
MOST_PIXELS_PER_BYTE = 1032
PIXELS_FREE = 1 << 16
EXTRA = "install the 'jpeg' extra: pip install 'renaissance[jpeg]'"


@cache
def required(name: str, purpose: str) -> ModuleType:
    """An optional package.

    Raises:
        ImportError: It is not installed; the message names the purpose and the extra.
    """
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{purpose} needs the package {name!r}; {EXTRA}") from error
    if name == "cv2":
        module.setNumThreads(0)  # the workers are the threads
    return module


def opencv(purpose: str) -> ModuleType:
    """OpenCV, single-threaded; see :func:`required`."""
    return required("cv2", purpose)


def check_pixels(height: int, width: int, size: int) -> None:
    """Refuse a header that promises more pixels than ``size`` bytes can hold."""
    if height < 1 or width < 1:
        raise FormatError(f"picture of {height}x{width} pixels, expected at least 1x1")
    if height * width > MOST_PIXELS_PER_BYTE * size + PIXELS_FREE:
        raise FormatError(
            f"header promises {height}x{width} pixels, more than its {size} bytes can hold"
        )


def image_size(data: bytes) -> tuple[int, int]:
    """Height and width from the header of a JPEG or PNG.

    Raises:
        FormatError: Neither, or damaged.
    """
    if data[:2] == JPEG_MAGIC:
        try:
            height, width, *_ = required("simplejpeg", "decoding JPEG").decode_jpeg_header(data)
        except ValueError as error:
            raise FormatError(f"damaged JPEG of {len(data)} bytes: {error}") from error
    elif data[:8] == PNG_MAGIC and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
    else:
        raise FormatError(f"begins with {bytes(data[:8]).hex()}, expected a JPEG or PNG")
    check_pixels(height, width, len(data))
    return height, width


def decode(
    data: bytes, channels: int = 3, *, least: tuple[int, int] = (0, 0), fast: bool = False
) -> np.ndarray:
    """Decode a JPEG or PNG.

    Args:
        data: The file's bytes.
        channels: 1 (grey) or 3 (RGB) of the result, whatever the file has.
        least: Height and width that a JPEG may be reduced to while decoding, (0, 0): not at all.
        fast: Take the decoder's faster, slightly less exact DCT and colour upsampling.

    Returns:
        uint8 [h, w, channels].

    Raises:
        FormatError: Damaged, or neither JPEG nor PNG.
        ImportError: The package that decodes it is missing.
    """
    image_size(data)
    if data[:2] == JPEG_MAGIC:
        simplejpeg = required("simplejpeg", "decoding JPEG")
        colour = "RGB" if channels == 3 else "GRAY"
        try:
            return simplejpeg.decode_jpeg(
                data,
                colorspace=colour,
                fastdct=fast,
                fastupsample=fast,
                min_height=least[0],
                min_width=least[1],
                min_factor=2 if least[0] else 1,
            )
        except ValueError as error:
            if "olorspace" not in str(error) and "CMYK" not in str(error):
                raise FormatError(f"damaged JPEG of {len(data)} bytes: {error}") from error
    return decode_with_opencv(data, channels)


def plain_png(data: bytes) -> bytes:
    """A PNG's picture chunks alone, their lengths and checksums verified.

    The decoder believes the lengths and takes memory for them; and animations are not pictures.

    Raises:
        FormatError: A chunk is cut off or damaged, the first is no header or the end is missing.
    """
    kept, position, kind = [data[:8]], 8, b""
    while kind != b"IEND":
        if len(data) - position < 12:
            raise FormatError(f"damaged PNG: it ends in a chunk, at byte {position} of {len(data)}")
        length, kind = struct.unpack_from(">I4s", data, position)
        if (kind == b"IHDR") is not (position == 8):
            raise FormatError(f"damaged PNG: chunk {kind!r} at byte {position}")
        end = position + 12 + length
        if end > len(data):
            raise FormatError(
                f"damaged PNG: chunk {kind!r} promises {length} bytes at byte {position} of "
                f"{len(data)}"
            )
        if zlib.crc32(data[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            raise FormatError(f"damaged PNG: checksum of chunk {kind!r} at byte {position}")
        if kind in PNG_CHUNKS:
            kept.append(data[position:end])
        position = end
    return b"".join(kept)


def decode_with_opencv(data: bytes, channels: int) -> np.ndarray:
    """PNG, and JPEG of unusual colour spaces."""
    cv2 = opencv("decoding PNG")
    if data[:8] == PNG_MAGIC:
        data = plain_png(data)
    flag = cv2.IMREAD_COLOR if channels == 3 else cv2.IMREAD_GRAYSCALE
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise FormatError(f"damaged picture of {len(data)} bytes: {error}") from error
    if image is None:
        raise FormatError(f"damaged picture of {len(data)} bytes")
    if channels == 3:
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return image[..., None]


def encode_jpeg(image: np.ndarray, quality: int) -> bytes:
    """Encode uint8 [h, w, 1 or 3] as JPEG."""
    simplejpeg = required("simplejpeg", "encoding JPEG")
    colour = "RGB" if image.shape[2] == 3 else "GRAY"
    return simplejpeg.encode_jpeg(
        np.ascontiguousarray(image), quality=quality, colorspace=colour, colorsubsampling="420"
    )
