"""A layer from outside the package, in its five places, trained like the built-in ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

jax = pytest.importorskip("jax", exc_type=ImportError)

import renaissance as rn  # noqa: E402
from renaissance.core.types import Shape, WeightGroup  # noqa: E402
from renaissance.graph import registry  # noqa: E402
from renaissance.graph.layer import ArchLayer, LayerDescriptor, WeightSpec  # noqa: E402
from renaissance.graph.registry import register_layer_kind  # noqa: E402
from renaissance.lowering import layers  # noqa: E402, F401  fills the table that is copied below
from renaissance.lowering import registry as lowering_registry  # noqa: E402
from renaissance.lowering.registry import LayerLowering, register_lowering  # noqa: E402


# 1 and 2: a kind with its parameter record. It is a leaky ReLU with a learned slope per channel.
@dataclass(frozen=True, slots=True)
class Prelu:
    factor: float = 1.0


# 3: the expansion rule is needed by composites only; this one is a primitive.


# 4: the descriptor.
def same_shape(params: Prelu, shape: Shape) -> Shape:
    return shape


def slopes(layer: ArchLayer) -> tuple[WeightSpec, ...]:
    return (WeightSpec("slope", (layer.in_shape.c,), WeightGroup.BN_WEIGHT),)


# 5: the lowering.
def infer(layer: ArchLayer, tensors, x):
    return jax.numpy.where(x > 0, x, x * tensors["slope"] * layer.params.factor)


def train(layer: ArchLayer, tensors, x, context):
    return infer(layer, tensors, x), {}


@pytest.fixture(autouse=True)
def prelu(monkeypatch):
    """The new kind is known for the length of a test."""
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    monkeypatch.setattr(lowering_registry, "_LOWERINGS", dict(lowering_registry._LOWERINGS))
    register_layer_kind(LayerDescriptor("prelu", Prelu, same_shape, weights=slopes))
    register_lowering(LayerLowering("prelu", train, infer))


def network() -> rn.Layer:
    return rn.seq(rn.fc(8), rn.layer("prelu", Prelu(0.5)), rn.fc(3))


def batch(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(rows, dtype=np.int32) % 3
    noise = np.random.default_rng(0).normal(size=(rows, 1, 1, 4))
    images = noise + np.eye(3, 4)[labels][:, None, None, :]
    return images.astype(np.float32), labels


def compiled(steps: int, rate: float) -> rn.Program:
    return rn.compile(
        network(),
        input_shape=(1, 1, 4),
        batch_size=12,
        optimizer=rn.SGD(),
        scheduler=rn.Constant(base_lr=rate),
        steps_per_epoch=steps,
        lowering="xla",
    )


def loss_by_hand(weights: dict, images, labels):
    """The network and its loss, written out without the package."""
    x = images[:, 0, 0, :] @ weights["fc1.weight"].T + weights["fc1.bias"]
    x = jax.numpy.where(x > 0, x, 0.5 * weights["prelu1.slope"] * x)
    logits = x @ weights["fc2.weight"].T + weights["fc2.bias"]
    chosen = jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]
    return -chosen.mean()


def test_one_step_is_the_gradient_by_hand():
    program = compiled(steps=1, rate=0.5)
    state = program.init(3)
    before = program.params(state)
    images, labels = batch()
    loss, gradients = jax.value_and_grad(loss_by_hand)(before, images, labels)
    state, metrics = program.train_step(state, (images, labels))
    assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-5)
    assert np.abs(gradients["prelu1.slope"]).max() > 1e-3
    for name, after in program.params(state).items():
        expected = before[name] - 0.5 * np.asarray(gradients[name])
        np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)


def test_it_learns():
    program = compiled(steps=60, rate=0.3)
    state = program.init(3)
    losses = []
    for _ in range(60):
        state, metrics = program.train_step(state, batch())
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.2 * losses[0]
    assert np.abs(program.params(state)["prelu1.slope"] - 1).max() > 0.01
