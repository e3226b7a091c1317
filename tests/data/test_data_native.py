"""The native workers and normalisation: numpy's bits, whatever instructions are at hand."""

from __future__ import annotations

import numpy as np
import pytest
from data_samples import EPOCH, SEED, needs_native, noise_dataset, transform_with_numpy

from renaissance.core.errors import NativeError
from renaissance.data import (
    CIFAR,
    MNIST,
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
    native,
)
from renaissance.data.buffers import paged
from renaissance.data.chain import Chain, lower_chain
from renaissance.data.normalization import Normalization

CHAINS: list[list[Transform]] = [
    [],
    [Pad(2), RandomCrop(28), RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5)],
    [Pad(4, "reflect"), RandomCrop((9, 13)), RandomHorizontalFlip()],
    [RandomHorizontalFlip(), Pad((0, 1, 2, 3), "edge", 3), RandomErasing(1.0)],
    [Pad(3, "symmetric"), CenterCrop((8, 10)), RandomErasing(0.7), RandomHorizontalFlip(0.5)],
    [RandomRotation((-180, 180), 77), RandomHorizontalFlip(0.3), RandomScale(0.1, 8.0, 255)],
    [RandomHorizontalFlip(), DoNothing(), RandomErasing(0.9), RandomHorizontalFlip()],
]


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(28, 28, 1), (10, 14, 3), (13, 9, 2), (16, 16, 4)])
@pytest.mark.parametrize("chain", CHAINS, ids=range(len(CHAINS)))
def test_native_workers_give_numpys_bits(chain, shape, dtype) -> None:
    if any(isinstance(t, RandomCrop) and t.size[0] > shape[0] + 4 for t in chain):
        pytest.skip("the crop does not fit")
    data = noise_dataset(33, *shape)
    images, finish, lowered = transform_with_numpy(data.images, chain)
    norm = Normalization((0.1, 0.2, 0.3, 0.4)[: shape[2]], (0.3, 0.25, 0.2, 0.15)[: shape[2]])
    out_channels = max(4, shape[2])
    expected = array_ops.normalize(np, images, finish, norm.table(shape[2], dtype), out_channels)
    pool, plan = native.Pool(3), native.Plan(lowered)
    out = np.full(expected.shape, np.nan, dtype)
    labels = np.empty(33, np.int32)
    ids = np.arange(33)
    where = {"seed": SEED, "epoch": EPOCH, "out_labels": labels}
    normalizer = native.Normalizer(norm, shape[2], np.dtype(dtype), out_channels)
    pool.fill(plan, normalizer, data.images, data.labels, ids, out=out, **where)
    assert out.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(labels, data.labels)
    # and without the normalisation
    raw = np.empty(images.shape, np.uint8)
    pool.fill(plan, None, data.images, data.labels, ids, out=raw, **where)
    flipped = images if finish.flip is None else array_ops.flip(np, images, finish.flip)
    np.testing.assert_array_equal(raw, flipped)
    pool.close()


@needs_native
@pytest.mark.parametrize("preset", [MNIST, CIFAR, Normalization(), Normalization((0.3,), (7.0,))])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("instruction_set", native.INSTRUCTION_SETS)
def test_every_instruction_set_gives_the_tables_bits(preset, dtype, channels, instruction_set):
    if len(preset.mean) > channels:
        pytest.skip("a normalisation for more channels")
    table = preset.table(channels, dtype)
    for out_channels in (channels, 4, 20):
        normalizer = native.Normalizer(
            preset, channels, np.dtype(dtype), out_channels, instruction_set
        )
        for h, w in ((1, 1), (1, 255), (3, 17), (8, 48), (300, 5), (4, 64), (9, 6), (9, 7), (9, 9)):
            image = noise_dataset(1, h, w, channels, seed=h).images[0]
            for flip in (False, True):
                out = paged((h, w, out_channels), np.dtype(dtype))
                out[:] = np.nan
                box = (0, w // 3, 1, w // 2) if w > 2 else (0, 0, 0, 0)
                normalizer.run(image, out, flip, box, stream=h % 2 == 0)
                expected = np.zeros((h, w, out_channels), dtype)
                pixels = image[:, ::-1] if flip else image
                expected[..., :channels] = table[np.arange(channels), pixels]
                expected[box[0] : box[0] + box[2], box[1] : box[1] + box[3]] = 0
                assert out.tobytes() == expected.tobytes()


@needs_native
def test_vector_arithmetic_is_really_used_for_the_presets() -> None:
    best = native.INSTRUCTION_SETS[native.required()["best_isa"]()]
    for preset, channels in ((MNIST, 1), (CIFAR, 3)):
        for dtype in (np.float32, np.float16):
            normalizer = native.Normalizer(preset, channels, np.dtype(dtype), 4)
            assert normalizer.instruction_set == best


@needs_native
def test_the_library_refuses_plans_it_cannot_run() -> None:
    chain = lower_chain([Pad(2), RandomCrop(8)], (8, 8, 1))
    good = chain.words()

    class Broken(Chain):
        def words(self) -> np.ndarray:
            return broken

    draw = np.random.default_rng(5)
    refused = 0
    for _ in range(500):
        broken = good.copy()
        broken[draw.integers(len(good))] = draw.choice([-1, 0, 3, 9, 2**20, 2**31 - 1])
        broken = broken[: draw.integers(1, len(good) + 1)] if draw.random() < 0.2 else broken
        try:
            native.Plan(Broken(chain.before, chain.after, chain.operations))
        except NativeError as error:
            refused += 1
            assert "refuses the chain" in str(error)
    assert refused > 300


@needs_native
def test_ids_out_of_range_are_refused() -> None:
    data = noise_dataset(4, 3, 3, 1)
    pool, plan = native.Pool(2), native.Plan(lower_chain([], (3, 3, 1)))
    out, labels = np.empty((2, 3, 3, 1), np.uint8), np.empty(2, np.int32)
    for bad in (-1, 4):
        with pytest.raises(IndexError, match=f"sample id {bad} at position 1 of 4 samples"):
            pool.fill(
                plan, None, data.images, data.labels, np.array([0, bad]),
                seed=0, epoch=0, out=out, out_labels=labels,
            )  # fmt: skip
    pool.close()
