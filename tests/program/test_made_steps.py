"""Steps that make their batches from rows of a data set: the bits of steps on the batches made."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.data import ArrayDataset, Pad, RandomCrop, RandomErasing, RandomRotation, loader
from renaissance.data.device_loader import DeviceLoader
from renaissance.data.transforms import RandomHorizontalFlip, RandomScale
from renaissance.lowering.rewrites import augment
from renaissance.runtime import library
from renaissance.runtime.executables import alias_map
from tests.program.support import bits

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

CLASSES, ROWS, STEPS = 7, 6, 3
CIFAR = (Pad(2), RandomCrop((7, 6)), RandomHorizontalFlip(), RandomErasing(0.9))
MNIST = (RandomRotation(40), RandomScale(0.5, 1.5), RandomErasing(0.9))
ON_GPU = jax.default_backend() == "gpu"


def source(
    transforms: tuple[Any, ...],
    channels: int = 3,
    side: int = 8,
    dtype: Any = np.float32,
    batches: int = STEPS,
) -> DeviceLoader:
    draw = np.random.default_rng(channels)
    images = draw.integers(0, 256, (ROWS * batches, side, side, channels), np.uint8)
    data = ArrayDataset(images, draw.integers(0, CLASSES, len(images)), CLASSES, "noise")
    return DeviceLoader(
        loader(
            data, batch_size=ROWS, shuffle=True, seed=2**33 + 1, transforms=transforms,
            normalization="MNIST", dtype=dtype,
        )
    )  # fmt: skip


def program(train: DeviceLoader, lowering: str = "fused", **options: Any) -> rn.Program:
    convolution = (rn.conv(8, 3, 1, 1), rn.bn(), rn.relu(), rn.gap(), rn.fc(CLASSES))
    defaults: dict[str, Any] = {"optimizer": rn.AdamW(), "scheduler": rn.Constant(0.01)}
    layers = options.pop("net", rn.seq(*convolution))
    given = {**defaults, "amp": True, **options}
    return rn.compile(layers, train.image_shape, ROWS, lowering=lowering, **given)


def stack(train: DeviceLoader, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The host's batches of an epoch."""
    images, labels = zip(*train.host.batches(epoch), strict=True)
    return np.stack(images), np.stack(labels)


def check(compiled: rn.Program, train: DeviceLoader, epoch: int) -> None:
    """Training on rows leaves the bits, and reports what training on the host's batches does."""
    (rows,) = train.rows(epoch)
    state, metrics = compiled.train_steps(compiled.init(1), rows)
    wanted, expected = compiled.train_steps(compiled.init(1), stack(train, epoch))
    assert bits(state) == bits(wanted)
    np.testing.assert_array_equal(metrics["loss"], expected["loss"])


@pytest.mark.parametrize(("amp", "dtype"), [(True, np.float32), (False, np.float16)])
def test_steps_that_make_their_batches_leave_the_bits_of_steps_that_are_given_them(
    amp: bool, dtype: Any
) -> None:
    train = source(CIFAR, dtype=dtype)
    compiled = program(train, amp=amp)
    for epoch in (0, 3):
        check(compiled, train, epoch)
    single = source(CIFAR, dtype=dtype, batches=1)
    rows = next(single.rows(5))
    state, metrics = compiled.train_step(compiled.init(1), rows)
    wanted, expected = compiled.train_step(compiled.init(1), next(single.host.batches(5)))
    assert bits(state) == bits(wanted) and float(metrics["loss"]) == float(expected["loss"])


def test_the_xla_lowering_takes_rows_too() -> None:
    train = source(CIFAR[1:3])
    check(program(train, "xla"), train, 1)


@pytest.mark.skipif(ON_GPU, reason="networks of this size are not among the device's tests")
@pytest.mark.parametrize("loop", ["chain", "persistent"])
def test_an_mlp_on_rows_leaves_the_bits_of_one_on_their_stack(loop: str) -> None:
    train = source(MNIST, channels=1, dtype=np.float16)
    net = rn.seq(rn.flatten(), rn.fc(40), rn.relu(), rn.fc(24), rn.relu(), rn.fc(CLASSES))
    compiled = program(train, net=net, loop=loop)
    check(compiled, train, 2)
    executable = compiled.backend.executable("train_rows", train.dataset.images.shape)
    text = executable.compiled.as_text()
    calls = {"chain": "rn_fc_forward", "persistent": "rn_mlp_train_steps"}
    assert text.count('custom_call_target="rn_augment_batch"') == 1 and calls[loop] in text
    granted = alias_map(executable.compiled)
    assert all(granted[i] == i for i in range(len(executable.state_paths)))


def test_two_chains_of_transforms_are_two_executables() -> None:
    first, second = source(CIFAR), source((*CIFAR[:-1], RandomErasing(0.1)))
    compiled = program(first)
    check(compiled, first, 0)
    check(compiled, second, 0)


def test_a_chain_that_the_kernel_cannot_hold_is_made_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(augment, "MOST_KEPT_BYTES", 16)
    train = source((RandomRotation(9), RandomScale(0.9, 1.1)), side=5, channels=1)
    compiled = program(train)
    check(compiled, train, 0)
    with pytest.raises(KeyError):
        compiled.backend.executable("train_rows", train.dataset.images.shape)


def test_rows_that_do_not_fit_are_refused() -> None:
    train = source(CIFAR)
    compiled = program(train, "xla")
    (rows,) = train.rows(0)
    state = compiled.init(0)
    with pytest.raises(ValueError, match=r"shape of the rows' ids is \(3, 6\), expected \(N,\)"):
        compiled.train_step(state, rows)
    with pytest.raises(ValueError, match=r"expected \(S, N\)"):
        compiled.train_steps(state, train.blank(1, ROWS))
    with pytest.raises(ValueError, match=r"shape of images is \(5, 7, 6, 3\)"):
        compiled.train_steps(state, train.blank(2, 5))
    with pytest.raises(TypeError, match="indices and values with rows"):
        compiled.train_steps(state, rows, rows.ids)
    few = rn.compile(rn.seq(rn.gap(), rn.fc(3)), train.image_shape, ROWS, lowering="xla")
    with pytest.raises(ValueError, match=r"classes of noise is 7, expected at most 3"):
        few.train_steps(few.init(0), rows)
