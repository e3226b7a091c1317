"""Transforms of single pictures: known answers, those of Pillow and OpenCV where they have them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from data_samples import encoded_noise, noise_dataset, real_data, smooth_picture

from renaissance.core.errors import ShapeError
from renaissance.data import (
    IMAGENET,
    CenterCrop,
    ColorJitter,
    FastRandomResizedCrop,
    FolderDataset,
    GaussianBlur,
    GaussianNoise,
    Pad,
    RandomAutocontrast,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomScale,
    Resize,
    loader,
)
from renaissance.data.colours import grey
from renaissance.data.draws import Draw
from renaissance.data.pictures import (
    PictureChain,
    apply,
    choose_window,
    output_shape,
    resize,
)

cv2 = pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
ImageOps = pytest.importorskip("PIL.ImageOps")

DRAW = Draw(99, 4, 7)


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a.astype(int) - b.astype(int))


def picture(h: int = 40, w: int = 50, c: int = 3) -> np.ndarray:
    return smooth_picture(h, w, c, 5)


@pytest.mark.parametrize(("h", "w", "size", "expected"), [
    (40, 50, 20, (20, 25)), (50, 40, 20, (25, 20)), (33, 100, 17, (17, 51)), (5, 5, 9, (9, 9)),
    (40, 50, (7, 9), (7, 9)), (1, 300, 2, (2, 600)),
])  # fmt: skip
def test_resize_takes_the_shorter_side_or_both(h, w, size, expected) -> None:
    assert apply(Resize(size), picture(h, w), DRAW, 0).shape[:2] == expected
    assert output_shape([Resize(size)], (h, w, 3), 3) == (*expected, 3)


def test_enlarging_is_pillows_bilinear_within_two_levels() -> None:
    image = picture()
    expected = np.asarray(Image.fromarray(image).resize((75, 60), Image.Resampling.BILINEAR))
    assert apart(resize(image, (60, 75)), expected).max() <= 2


def test_halving_averages() -> None:
    image = noise_dataset(1, 20, 30, 3).images[0]
    means = image.reshape(10, 2, 15, 2, 3).mean(axis=(1, 3))
    assert np.abs(resize(image, (10, 15)) - means).max() <= 0.51


@pytest.mark.parametrize("c", [1, 3])
def test_one_and_three_channels_stay(c: int) -> None:
    chain = [Resize(30), RandomResizedCrop(24), RandomRotation(10), RandomScale(0.9, 1.1),
             GaussianBlur(3), RandomGrayscale(1.0), RandomAutocontrast(1.0),
             ColorJitter(0.2, 0.2, 0.2, 0.1), GaussianNoise(0, 0.01), Pad(2, "reflect"),
             RandomCrop(24)]  # fmt: skip
    image, _, _ = PictureChain(chain, c).run(picture(40, 50, c), DRAW)
    assert image.shape == (24, 24, c) and image.dtype == np.uint8


def test_windows_keep_to_area_and_ratio() -> None:
    crop = RandomResizedCrop(224)
    areas, ratios = [], []
    for sample in range(3000):
        top, left, height, width = choose_window(crop, 400, 500, Draw(1, 0, sample))
        assert 0 <= top <= 400 - height and 0 <= left <= 500 - width
        areas.append(height * width / (400 * 500))
        ratios.append(math.log(width / height))
    # proportions and sizes that do not fit are redrawn, which thins out the largest areas
    assert 0.078 < min(areas) < 0.09 and 0.97 < max(areas) <= 1
    assert abs(np.mean(areas) - 0.45) < 0.02
    assert math.log(0.74) < min(ratios) and max(ratios) < math.log(1.36)
    assert abs(np.mean(ratios)) < 0.03


@pytest.mark.parametrize(("h", "w", "expected"), [
    (100, 1000, (0, 433, 100, 133)), (1000, 100, (433, 0, 133, 100)), (50, 50, (0, 0, 50, 50)),
])  # fmt: skip
def test_where_no_window_fits_the_largest_central_one_is_taken(h, w, expected) -> None:
    never = RandomResizedCrop(8, scale=(1.0, 1.0), ratio=(3 / 4, 4 / 3))
    if h == w:
        never = RandomResizedCrop(8, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    assert choose_window(never, h, w, DRAW) == expected


def test_a_random_resized_crop_is_a_crop_and_a_resize() -> None:
    image, crop = picture(60, 70), RandomResizedCrop((24, 32))
    top, left, height, width = choose_window(crop, 60, 70, DRAW)
    expected = resize(image[top : top + height, left : left + width], (24, 32))
    np.testing.assert_array_equal(apply(crop, image, DRAW, 0), expected)


def test_reduced_decoding_shows_the_same_window() -> None:
    jpeg = pytest.importorskip("simplejpeg")
    big = cv2.resize(smooth_picture(20, 27, 3, 1), (640, 480), interpolation=cv2.INTER_CUBIC)
    data = jpeg.encode_jpeg(np.ascontiguousarray(big), quality=95)
    for sample in range(20):
        draw = Draw(3, 0, sample)
        plain, _, _ = PictureChain([RandomResizedCrop(48)], 3).run_encoded(data, draw)
        fast, _, _ = PictureChain([FastRandomResizedCrop(48)], 3).run_encoded(data, draw)
        assert fast.shape == plain.shape
        assert apart(fast, plain).mean() < 4


def test_grey_is_pillows() -> None:
    image = noise_dataset(1, 30, 30, 3).images[0]
    np.testing.assert_array_equal(grey(image), np.asarray(Image.fromarray(image).convert("L")))


def jittered(**amount: float) -> tuple[np.ndarray, np.ndarray, float]:
    """A picture, what one kind of jitter makes of it, and the factor drawn."""
    image, order = picture(), ("brightness", "contrast", "saturation", "hue")
    ((name, width),) = amount.items()
    u = DRAW.uniforms(0)[order.index(name)]
    low = max(0.0, 1 - width)
    factor = width * (2 * u - 1) if name == "hue" else low + (1 + width - low) * u
    return image, apply(ColorJitter(**amount), image, DRAW, 0), factor


@pytest.mark.parametrize(("name", "enhance"), [
    ("brightness", "Brightness"), ("contrast", "Contrast"), ("saturation", "Color"),
])  # fmt: skip
def test_jitter_is_pillows_within_one_level(name: str, enhance: str) -> None:
    image, result, factor = jittered(**{name: 0.6})
    expected = getattr(ImageEnhance, enhance)(Image.fromarray(image)).enhance(factor)
    assert factor != 1 and apart(result, np.asarray(expected)).max() <= 1


def test_hue_turns_the_circle_like_pillow_within_a_few_levels() -> None:
    image, result, turn = jittered(hue=0.4)
    h, s, v = Image.fromarray(image).convert("HSV").split()
    turned = (np.asarray(h).astype(int) + round(turn * 255)) % 256
    merged = Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert("RGB")
    assert apart(result, np.asarray(merged)).mean() < 3
    assert apart(result, image).mean() > 10


def test_autocontrast_is_pillows_within_one_level() -> None:
    image = (picture() // 2 + 40).astype(np.uint8)
    image[..., 1] = 77
    result = apply(RandomAutocontrast(1.0), image, DRAW, 0)
    assert apart(result, np.asarray(ImageOps.autocontrast(Image.fromarray(image)))).max() <= 1
    assert (result[..., 1] == 77).all() and result[..., 0].min() == 0


def test_blur_is_the_gaussian_sum() -> None:
    image = noise_dataset(1, 12, 14, 3).images[0]
    result = apply(GaussianBlur(5, 1.3), image, DRAW, 0)
    taps = np.exp(-0.5 * (np.arange(-2, 3) / 1.3) ** 2)
    taps /= taps.sum()
    padded = np.pad(image.astype(float), ((2, 2), (2, 2), (0, 0)), mode="reflect")
    rows = sum(taps[k] * padded[k : k + 12] for k in range(5))
    exact = sum(taps[k] * rows[:, k : k + 14] for k in range(5))
    assert np.abs(result - exact).max() <= 1.5  # its taps are in 1/256


def test_noise_has_its_mean_and_deviation() -> None:
    image = np.full((100, 100, 3), 128, np.uint8)
    error = apply(GaussianNoise(0.02, 0.05), image, DRAW, 0).astype(float) - 128
    assert abs(error.mean() - 255 * 0.02) < 0.3
    assert abs(error.std() - 255 * 0.05) < 0.3


def test_grayscale_happens_as_often_as_it_should() -> None:
    image, turned = picture(4, 4), 0
    for sample in range(1000):
        result = apply(RandomGrayscale(0.2), image, Draw(0, 0, sample), 0)
        turned += int((result[..., 0] == result[..., 1]).all())
    assert 160 < turned < 240


def test_rotation_and_scale_of_pictures_are_those_of_batches_within_a_few_levels() -> None:
    from renaissance.data import ArrayDataset

    images = np.stack([smooth_picture(28, 28, 1, i) for i in range(10)])
    data = ArrayDataset(images, np.zeros(10, int), 1)
    how = {"batch_size": 10, "transforms": [RandomRotation(20), RandomScale(0.8, 1.2)]}
    batch, _ = next(iter(loader(data, backend="numpy", **how)))
    one_by_one, _ = next(iter(loader(data, backend="picture", **how)))
    assert np.abs(batch - one_by_one)[:, 4:-4, 4:-4].max() * 255 <= 8


def test_shapes_of_differing_pictures() -> None:
    assert output_shape([RandomResizedCrop((8, 9)), RandomHorizontalFlip()], None, 3) == (8, 9, 3)
    assert output_shape([Resize(20), CenterCrop(16)], None, 1) == (16, 16, 1)
    assert output_shape([Resize((20, 30)), Pad(2)], None, 1) == (24, 34, 1)
    with pytest.raises(ValueError, match="pictures of different sizes stay so"):
        output_shape([Resize(20)], None, 3)
    with pytest.raises(ShapeError, match="25x25 pixels from pictures of 20x30"):
        output_shape([Resize((20, 30)), CenterCrop(25)], None, 1)


def test_a_picture_that_comes_out_wrong_is_named() -> None:
    pytest.importorskip("simplejpeg")
    data = encoded_noise(4)
    with loader(data, batch_size=4, transforms=[CenterCrop(45)]) as batches:
        with pytest.raises(ShapeError, match="45x45 pixels from pictures of 20x24"):
            list(batches)


def test_real_photographs_through_the_imagenet_chain() -> None:
    pytest.importorskip("simplejpeg")
    data = FolderDataset(real_data("imagenet-sample"))
    assert len(data) == 100 and data.num_classes == 100
    train = [FastRandomResizedCrop(224), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4),
             RandomErasing(0.25)]  # fmt: skip
    for transforms in (train, [Resize(256), CenterCrop(224)]):
        with loader(data, batch_size=25, transforms=transforms, normalization=IMAGENET,
                    dtype=np.float16, channels=4, workers=2) as batches:  # fmt: skip
            count = 0
            for images, _ in batches:
                assert images.shape == (25, 224, 224, 4)
                assert np.isfinite(images).all() and not images[..., 3].any()
                count += len(images)
            assert count == 100 and not batches.replaced
