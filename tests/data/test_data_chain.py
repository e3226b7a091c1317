"""Geometric chains: known answers by numpy; the native workers are compared in their own file."""

from __future__ import annotations

import numpy as np
import pytest
from data_samples import EPOCH, SEED, noise_dataset, transform_with_numpy

from renaissance.core.errors import ShapeError
from renaissance.core.philox import philox4x32, random_words, uniform
from renaissance.data import (
    CIFAR,
    CenterCrop,
    DoNothing,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomScale,
    Transform,
    array_ops,
)
from renaissance.data.chain import FIRST_OPERATION, lower_chain, threshold
from renaissance.data.draws import Draw, bounded, choose_rectangle, philox_block


def test_all_philox_versions_are_the_cores() -> None:
    assert philox_block((0, 0, 0, 0), 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    draw = np.random.default_rng(0)
    for _ in range(20):
        counter = draw.integers(0, 2**32, 4, np.uint32)
        key = int(draw.integers(0, 2**63)) * 2 + 1
        expected = philox4x32(counter, key).tolist()
        assert list(philox_block(tuple(map(int, counter)), key)) == expected
        halves = [np.full(1, key & 0xFFFFFFFF, np.uint32), np.full(1, key >> 32, np.uint32)]
        columns = tuple(np.full(1, word, np.uint32) for word in counter)
        for upper_half in (array_ops.upper_half_wide, array_ops.upper_half_narrow):
            words = array_ops.philox(np, columns, *halves, upper_half)
            assert [int(w[0]) for w in words] == expected


def test_a_draw_is_the_cores_stream_of_sample_operation_and_epoch() -> None:
    draw = Draw(SEED, EPOCH, 17).at(2)
    place = {"sample": 17, "operation": FIRST_OPERATION + 2, "step": EPOCH}
    assert draw.uniforms(1) == tuple(map(float, uniform(SEED, 8, **place)[4:]))
    np.testing.assert_array_equal(draw.words(9), random_words(SEED, 9, **place))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 29, 224, 1024, 2**19 - 1])
def test_bounded_is_the_exact_floor(n: int) -> None:
    edge = [k * 2**32 // n + d for k in {0, 1, n // 2, n - 1} for d in (-300, -1, 0, 1, 300)]
    words = np.clip([*edge, 0, 2**32 - 1], 0, 2**32 - 1).astype(np.uint32)
    exact = [(int(w) >> 8) * n >> 24 for w in words]
    assert array_ops.bounded(np, words, np.full(len(words), n)).tolist() == exact
    assert [bounded(int(w), n) for w in words] == exact
    assert 0 <= min(exact) and max(exact) == n - 1


def test_a_threshold_decides_like_the_uniform_number_itself() -> None:
    for p in (0.0, 1e-9, 0.1, 0.25, 1 / 3, 0.5, 1 - 2**-24, 1.0):
        limit = threshold(p)
        for bits in {0, max(0, limit - 1), min(limit, 2**24 - 1), 2**24 - 1}:
            assert (bits < limit) == (bits * 2.0**-24 < p)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad_is_numpys(mode: str) -> None:
    images = noise_dataset(2, 5, 6, 3).images
    result, _, _ = transform_with_numpy(images, [Pad((1, 2, 3, 4), mode, 0)])
    expected = np.pad(images, ((0, 0), (2, 4), (1, 3), (0, 0)), mode=mode)
    np.testing.assert_array_equal(result, expected)


def test_pad_fills_with_its_value() -> None:
    result, _, _ = transform_with_numpy(np.zeros((1, 1, 1, 1), np.uint8), [Pad(1, fill=7)])
    assert result[0, :, :, 0].tolist() == [[7, 7, 7], [7, 0, 7], [7, 7, 7]]


def test_center_crop_takes_the_middle() -> None:
    images = np.arange(5 * 6, dtype=np.uint8).reshape(1, 5, 6, 1)
    result, _, _ = transform_with_numpy(images, [CenterCrop((3, 2))])
    np.testing.assert_array_equal(result[0, :, :, 0], images[0, 1:4, 2:4, 0])


def test_random_crop_takes_every_place_and_only_where_its_numbers_say() -> None:
    images = np.broadcast_to(np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1), (500, 5, 5, 1))
    result, _, _ = transform_with_numpy(images, [RandomCrop((3, 4))])
    corners = result[:, 0, 0, 0]
    assert set(corners.tolist()) == {5 * y + x for y in range(3) for x in range(2)}
    for sample in (0, 1, 499):
        top, left, _, _ = Draw(SEED, EPOCH, sample).at(0).uniforms()
        assert corners[sample] == 5 * int(top * 3) + int(left * 2)


def test_flip_mirrors_about_half_of_the_samples() -> None:
    images = noise_dataset(400, 3, 5, 2).images
    # a crop of everything follows, so that the flip is not left to the normalisation
    result, finish, _ = transform_with_numpy(
        images, [RandomHorizontalFlip(0.5), CenterCrop((3, 5))]
    )
    assert finish.flip is None
    flipped = np.array([Draw(SEED, EPOCH, i).at(0).uniforms()[0] < 0.5 for i in range(400)])
    np.testing.assert_array_equal(result[flipped], images[flipped][:, :, ::-1])
    np.testing.assert_array_equal(result[~flipped], images[~flipped])
    assert 160 < flipped.sum() < 240


@pytest.mark.parametrize(("p", "share"), [(0.0, 0), (1.0, 50)])
def test_probabilities_of_zero_and_one_are_exact(p: float, share: int) -> None:
    images = noise_dataset(50, 8, 8, 1).images
    _, finish, _ = transform_with_numpy(images, [RandomHorizontalFlip(p), RandomErasing(p)])
    assert finish.flip is not None and finish.rectangle is not None
    assert finish.flip.sum() == share
    assert (finish.rectangle[2] > 0).sum() == share


@pytest.mark.parametrize("turn", [90, -90, 180])
@pytest.mark.parametrize("shape", [(5, 5), (6, 6)])
def test_quarter_turns_are_exact(turn: int, shape: tuple[int, int]) -> None:
    images = noise_dataset(2, *shape, 3).images
    result, _, _ = transform_with_numpy(images, [RandomRotation((turn, turn))])
    np.testing.assert_array_equal(result, np.rot90(images, turn // 90, axes=(1, 2)))


def test_no_turn_and_no_scale_change_nothing() -> None:
    images = noise_dataset(3, 7, 9, 2).images
    result, _, _ = transform_with_numpy(images, [RandomRotation(0), RandomScale(1, 1)])
    np.testing.assert_array_equal(result, images)


@pytest.mark.parametrize("transform", [RandomRotation(35, 9), RandomScale(0.6, 1.7, 9)])
@pytest.mark.parametrize("shape", [(28, 28, 1), (17, 32, 3)])
def test_rotation_and_scale_are_opencvs(transform: Transform, shape) -> None:
    cv2 = pytest.importorskip("cv2")
    # a smooth picture: OpenCV places its samples in steps of 1/32 pixel
    y, x = np.mgrid[: shape[0], : shape[1]]
    smooth = 100 + 90 * np.sin(x / 5) * np.cos(y / 4)
    images = np.repeat(smooth[None, :, :, None], 20, 0).repeat(shape[2], 3).astype(np.uint8)
    result, _, chain = transform_with_numpy(images, [transform])
    op = chain.operations[0]
    centre = ((shape[1] - 1) / 2, (shape[0] - 1) / 2)
    for sample in range(20):
        entry = Draw(SEED, EPOCH, sample).at(0).block(0)[0] >> 20
        if isinstance(transform, RandomRotation):
            cosine, sine = op.table[2 * entry : 2 * entry + 2] / 65536
            matrix = cv2.getRotationMatrix2D(centre, np.degrees(np.arctan2(sine, cosine)), 1)
        else:
            matrix = cv2.getRotationMatrix2D(centre, 0, 65536 / op.table[entry])
        expected = cv2.warpAffine(images[sample], matrix, shape[1::-1], borderValue=(9,) * 4)
        error = np.abs(result[sample].astype(int) - expected.reshape(shape).astype(int))
        # at the frame a 1/64 pixel of position is worth a few levels against the fill
        assert error[2:-2, 2:-2].max() <= 6 and error.mean() < 0.6


def test_erased_rectangles_keep_to_their_ranges() -> None:
    n, h, w = 2000, 40, 60
    images = np.zeros((n, h, w, 1), np.uint8)
    erasing = RandomErasing(1.0, scale=(0.1, 0.2), ratio=(0.5, 2.0))
    _, finish, chain = transform_with_numpy(images, [erasing])
    assert finish.rectangle is not None
    top, left, height, width = finish.rectangle
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= h).all() and (left + width <= w).all()
    area = height * width / (h * w)
    assert 0.09 < area.min() < 0.105 and 0.195 < area.max() < 0.21
    assert abs(area.mean() - 0.15) < 0.003
    log_ratio = np.log(height / width)
    assert abs(log_ratio.mean()) < 0.03
    assert np.log(0.45) < log_ratio.min() < log_ratio.max() < np.log(2.2)
    for sample in range(50):
        expected = choose_rectangle(chain.operations[0], Draw(SEED, EPOCH, sample).at(0))
        assert expected == tuple(int(part[sample]) for part in finish.rectangle)


def test_a_rectangle_that_never_fits_erases_nothing() -> None:
    images = np.zeros((20, 8, 8, 1), np.uint8)
    _, finish, _ = transform_with_numpy(images, [RandomErasing(1.0, (1.0, 1.0), (1.0, 1.0))])
    assert finish.rectangle is not None and not finish.rectangle[2].any()


def test_erased_and_padded_values_are_zero_after_normalisation() -> None:
    images = np.full((30, 6, 6, 3), 200, np.uint8)
    result, finish, _ = transform_with_numpy(images, [RandomErasing(1.0)])
    values = array_ops.normalize(np, result, finish, CIFAR.table(3, np.float16), 4)
    assert values.shape == (30, 6, 6, 4)
    assert not values[..., 3].any() and not np.signbit(values[..., 3]).any()
    top, left, height, width = finish.rectangle
    for i in range(30):
        inside = np.zeros((6, 6), bool)
        inside[top[i] : top[i] + height[i], left[i] : left[i] + width[i]] = True
        assert (values[i, inside] == 0).all() and (values[i, ~inside, :3] != 0).all()


def test_a_flip_after_an_erasure_mirrors_the_rectangle() -> None:
    images = noise_dataset(20, 6, 7, 1).images
    plain = transform_with_numpy(images, [RandomErasing(1.0), DoNothing()])[1].rectangle
    mirrored = transform_with_numpy(images, [RandomErasing(1.0), RandomHorizontalFlip(1.0)])[1]
    assert plain is not None and mirrored.rectangle is not None
    np.testing.assert_array_equal(mirrored.rectangle[1], 7 - plain[1] - plain[3])


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: lower_chain([RandomCrop(9)], (8, 8, 1)), ShapeError, "9x9 pixels from .* 8x8"),
        (lambda: lower_chain([Pad(8, "reflect")], (8, 8, 1)), ShapeError, "at most 7 rows"),
        (lambda: lower_chain([RandomCrop], (8, 8, 1)), TypeError, r"RandomCrop\(\.\.\.\)"),
        (lambda: lower_chain([RandomErasing(), Pad(1)], (8, 8, 1)), ValueError, "must stand at"),
        (lambda: lower_chain([RandomErasing(), RandomErasing()], (8, 8, 1)), ValueError, "one"),
        (lambda: Pad(-1), ValueError, "Pad padding is -1"),
        (lambda: Pad((1, 2)), ValueError, "left, top, right, bottom"),
        (lambda: Pad(1, "mirror"), ValueError, "Pad mode is 'mirror'"),
        (lambda: RandomCrop(0), ValueError, "RandomCrop size"),
        (lambda: RandomCrop((1, 2, 3)), ValueError, "height, width"),
        (lambda: RandomHorizontalFlip(1.5), ValueError, "RandomHorizontalFlip p is 1.5"),
        (lambda: RandomRotation((20, -20)), ValueError, "from <= to"),
        (lambda: RandomScale(0.0, 1.0), ValueError, "RandomScale factors"),
        (lambda: RandomErasing(scale=(0.0, 0.5)), ValueError, "RandomErasing scale"),
    ],
)
def test_wrong_transforms_say_what_would_be_right(make, kind, message) -> None:
    with pytest.raises(kind, match=message):
        make()
