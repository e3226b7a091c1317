"""The plain loader: deterministic, complete, and exact about its last batch."""

from __future__ import annotations

import numpy as np
import pytest

from renaissance.data import MNIST, ArrayDataset, Normalization, loader


def numbered(n: int, h: int = 4, w: int = 3, c: int = 1) -> ArrayDataset:
    """Sample i is a picture full of i, with label i."""
    images = np.empty((n, h, w, c), np.uint8)
    images[:] = np.arange(n, dtype=np.uint8)[:, None, None, None]
    return ArrayDataset(images, np.arange(n), n, "numbered")


def test_without_shuffling_the_order_is_the_data_sets() -> None:
    batches = list(loader(numbered(10), batch_size=4))
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(10))
    for images, labels in batches:
        assert images.shape == (len(labels), 4, 3, 1)
        assert (images.dtype, labels.dtype) == (np.float32, np.int32)
        np.testing.assert_allclose(images[:, 0, 0, 0], labels / 255, rtol=1e-7)


def test_drop_last_leaves_out_the_incomplete_batch() -> None:
    batches = loader(numbered(10), batch_size=4, drop_last=True)
    assert len(batches) == 2
    assert [len(labels) for _, labels in batches] == [4, 4]
    assert len(loader(numbered(10), batch_size=4)) == 3
    assert len(loader(numbered(8), batch_size=4)) == 2


def test_shuffling_visits_every_sample_once_in_an_order_of_seed_and_epoch() -> None:
    def stream(seed: int, epoch: int) -> list[int]:
        batches = loader(numbered(50), batch_size=7, shuffle=True, seed=seed).batches(epoch)
        return [int(label) for _, labels in batches for label in labels]

    assert sorted(stream(1, 0)) == list(range(50))
    assert stream(1, 0) == stream(1, 0)
    assert len({tuple(stream(s, e)) for s in (1, 2) for e in (0, 1)}) == 4


def test_each_loop_is_the_next_epoch() -> None:
    data = loader(numbered(20), batch_size=20, shuffle=True, seed=3, epoch=5)
    for epoch in (5, 6):
        (_, looped), (_, named) = next(iter(data)), next(data.batches(epoch))
        np.testing.assert_array_equal(looped, named)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_normalisation_is_a_table_of_the_formula(dtype: type) -> None:
    (images, labels) = next(
        iter(loader(numbered(256), batch_size=256, normalization=MNIST, dtype=dtype))
    )
    exact = (np.arange(256) / 255 - 0.1307) / 0.3081
    if dtype == np.float16:
        np.testing.assert_array_equal(images[:, 1, 2, 0], exact.astype(dtype)[labels])
    else:
        assert np.abs(images[:, 1, 2, 0] - exact[labels]).max() < 2e-7 * np.abs(exact).max()
    assert images.dtype == dtype


def test_mnist_black_in_fp16() -> None:
    assert MNIST.table(1, np.float16).view(np.uint16)[0, 0] == 0xB6CA


def test_normalisation_per_channel() -> None:
    table = Normalization((0.0, 0.5, 1.0), (1.0, 0.5, 0.25)).table(3)
    np.testing.assert_allclose(table[:, 255], [1.0, 1.0, 0.0], atol=3e-7)
    assert table[:, 0].tolist() == [0.0, -1.0, -4.0]


@pytest.mark.parametrize(
    ("kwargs", "kind", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0, expected an integer >= 1"),
        ({"batch_size": 11}, ValueError, "batch_size is 11, expected at most 10, all of numbered"),
        ({"batch_size": 2.0}, TypeError, "batch_size is 2.0"),
        ({"batch_size": 2, "seed": -1}, ValueError, "seed is -1"),
        ({"batch_size": 2, "epoch": -1}, ValueError, "epoch is -1"),
        ({"batch_size": 2, "dtype": "int8"}, ValueError, "dtype is 'int8', expected float32"),
        ({"batch_size": 2, "normalization": "MINST"}, ValueError, "normalization is 'MINST'"),
        (
            {"batch_size": 2, "normalization": Normalization((0.0, 0.0), (1.0,))},
            ValueError,
            "mean is .* expected 1 or 1 values",
        ),
        ({"batch_size": 2, "shufle": True}, TypeError, "shufle"),
    ],
)
def test_wrong_arguments_fail_at_once(kwargs, kind, message) -> None:
    with pytest.raises(kind, match=message):
        loader(numbered(10), **kwargs)


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan")])
def test_a_standard_deviation_is_positive(std: float) -> None:
    with pytest.raises(ValueError, match="std"):
        Normalization((0.0,), (std,))
