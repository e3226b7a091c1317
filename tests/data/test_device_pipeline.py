"""The device's batches are the host's, bit by bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data_samples import noise_dataset, real_data

from renaissance.data import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomRotation,
    RandomScale,
    load_mnist,
    loader,
)
from renaissance.data.device_pipeline import DevicePipeline

CHAINS = {
    "none": [],
    "mnist": [
        Pad(2),
        RandomCrop(28),
        RandomRotation(20),
        RandomScale(0.8, 1.2),
        RandomErasing(0.5),
    ],
    "cifar": [Pad(4), RandomCrop(28), RandomHorizontalFlip(), RandomErasing(0.9)],
    "all": [
        RandomHorizontalFlip(),
        Pad(3, "reflect"),
        CenterCrop(30),
        RandomRotation((-180, 180), 7),
        RandomErasing(0.7),
        RandomHorizontalFlip(),
    ],
}


# compiling takes seconds: every chain, channel count and dtype once, not all their combinations
@pytest.mark.parametrize(
    ("chain", "channels", "dtype"),
    [
        ("none", 3, np.float16),
        ("mnist", 1, np.float16),
        ("cifar", 3, np.float32),
        ("all", 2, np.float16),
    ],
)
def test_the_devices_batch_equals_the_hosts(chain: str, channels: int, dtype) -> None:
    data = noise_dataset(50, 28, 28, channels)
    host = loader(
        data, batch_size=25, shuffle=True, seed=2**40 + 9, transforms=CHAINS[chain], dtype=dtype,
        normalization="MNIST", channels=4,
    )  # fmt: skip
    pipeline = DevicePipeline.of(host)
    assert pipeline.image_shape == host.image_shape
    placed, batch = pipeline.place(), jax.jit(pipeline.batch)
    for epoch in (0, 5):
        for ids, (images, labels) in zip(host.id_batches(epoch), host.batches(epoch), strict=True):
            on_device, labels_on_device = batch(placed, jnp.asarray(ids, jnp.int32), epoch)
            assert on_device.dtype == dtype
            assert np.asarray(on_device).tobytes() == images.tobytes()
            np.testing.assert_array_equal(np.asarray(labels_on_device), labels)


def test_real_mnist_on_the_device() -> None:
    data = load_mnist(real_data("mnist"), train=False)
    host = loader(data, batch_size=200, shuffle=True, seed=123, transforms=CHAINS["mnist"],
                  normalization="MNIST", dtype=np.float16)  # fmt: skip
    pipeline = DevicePipeline.of(host)
    placed, batch = pipeline.place(), jax.jit(pipeline.batch)
    for ids, (images, _), _ in zip(host.id_batches(3), host.batches(3), range(3), strict=False):
        result = batch(placed, jnp.asarray(ids, jnp.int32), 3)[0]
        assert np.asarray(result).tobytes() == images.tobytes()


def test_the_device_takes_geometric_chains_only() -> None:
    data = noise_dataset(4, 8, 8, 3)
    with pytest.raises(TypeError, match="RandomGrayscale.* is not geometric"):
        DevicePipeline(data, transforms=RandomGrayscale())
    with pytest.raises(TypeError, match="dataset"):
        DevicePipeline("mnist")
