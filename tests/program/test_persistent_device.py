"""The persistent kernel on a device it is made for, against the chain and against XLA."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Region
from tests.lowering.native import relative_error
from tests.program.support import bits

HOPPER = jax.default_backend() == "gpu" and str(jax.devices()[0].compute_capability) == "9.0"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HOPPER, reason="needs a CUDA device of compute capability 9.0"),
]
VALUES = ((np.arange(256) / 255 - 0.1307) / 0.3081).astype(np.float16)
SAMPLES, STEPS, INPUT, CLASSES = 4000, 50, 784, 10


@dataclass(frozen=True)
class Case:
    """A network, how it trains, and the form its batches come in."""

    hidden: tuple[int, ...]
    activation: Any
    optimizer: Any
    batch: int
    images: str
    options: dict[str, Any] = field(default_factory=dict)

    def program(self, loop: str, lowering: str = "fused") -> rn.Program:
        layers = [part for width in self.hidden for part in (rn.fc(width), self.activation())]
        net = rn.seq(rn.flatten(), *layers, rn.fc(CLASSES))
        rate = 1e-3 if isinstance(self.optimizer, (rn.Adam, rn.AdamW)) else 0.02
        options = {"loss_scale": rn.LossScale(2.0**8), "scheduler": rn.Constant(rate), "amp": True}
        options |= {"optimizer": self.optimizer, "lowering": lowering, "loop": loop}
        return rn.compile(net, (28, 28, 1), self.batch, **options | self.options)

    def train(self, program: rn.Program, state: Any, steps: slice) -> tuple[Any, np.ndarray]:
        images, labels, indices = data_set()
        rows = indices[steps, : self.batch]
        if self.images == "uint8":
            given = (jax.device_put(images), jax.device_put(labels))
            state, metrics = program.train_steps(state, given, rows, values=VALUES)
        else:
            stack = VALUES[images].astype(self.images)[rows], labels[rows]
            state, metrics = program.train_steps(state, stack)
        return state, np.stack([metrics[n] for n in ("loss", "top1", "count", "lr", "skipped")], 1)


def data_set() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures with a teacher that can be learnt, and which rows each batch takes."""
    rng = np.random.default_rng(7)
    images = rng.integers(0, 256, (SAMPLES, 28, 28, 1), dtype=np.uint8)
    scores = VALUES.astype(np.float32)[images].reshape(SAMPLES, -1) @ rng.normal(size=(INPUT, 10))
    indices = rng.integers(0, SAMPLES, (STEPS, 224)).astype(np.int32)
    return images, scores.argmax(1).astype(np.int32), indices


CASES = {
    "adamw": Case((1024, 512, 256), rn.relu, rn.AdamW(weight_decay=1e-2), 200, "float32"),
    "adam": Case((512, 256), rn.leaky_relu, rn.Adam(weight_decay=1e-3), 64, "uint8"),
    "momentum": Case(
        (256, 200, 256, 256),
        rn.relu6,
        rn.SGD(momentum=0.9, weight_decay=1e-3),
        100,
        "float16",
        {"grad_clip": rn.ClipByValue(0.01), "loss": rn.CrossEntropy(label_smoothing=0.1)},
    ),
    "deep": Case((256,) * 6, rn.relu, rn.SGD(momentum=0.9, nesterov=True), 32, "uint8"),
    "deepest": Case((256,) * 7, rn.relu, rn.AdamW(), 32, "uint8"),
    "768": Case((768, 256), rn.relu, rn.AdamW(), 64, "uint8"),
    "700": Case((256, 700, 256), rn.relu, rn.AdamW(), 100, "float32"),
    "sgd": Case((512, 512, 256), rn.relu, rn.SGD(), 111, "uint8"),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_one_step_agrees_with_the_chain(case: Case) -> None:
    states = []
    for loop in ("chain", "persistent"):
        program = case.program(loop)
        state, metrics = case.train(program, program.init(1), slice(0, 1))
        states.append(({(r, n): v for r, n, v in state.named_leaves()}, metrics))
    (theirs, expected), (ours, found) = states
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=2e-3)
    np.testing.assert_array_equal(found[:, 2:], expected[:, 2:])
    start = {(r, n): v for r, n, v in case.program("chain").init(1).named_leaves()}
    for (region, name), value in theirs.items():
        if region.name.startswith("M_"):
            assert relative_error(ours[region, name], value) < 5e-3, (region, name)
        if region.name.startswith("W_") and not region.name.endswith("BIAS"):
            moved = value - start[region, name]
            difference = relative_error(ours[region, name] - start[region, name], moved)
            assert difference < 0.1, (region, name)  # Adam's first step is the gradient's sign
        if region.name.startswith("S_SCALAR_INT32"):
            np.testing.assert_array_equal(ours[region, name], value, err_msg=name)


def test_fifty_steps_stay_as_close_as_the_chain_and_xla_are(case: Case) -> None:
    losses = {}
    for name, loop, lowering in (
        ("persistent", "persistent", "fused"),
        ("chain", "chain", "fused"),
        ("xla", "auto", "xla"),
    ):
        program = case.program(loop, lowering)
        state, metrics = case.train(program, program.init(1), slice(None))
        assert state[Region.S_SCALAR_INT32]["applied_steps"] == STEPS
        total = state[Region.R_RESULT_ACCUMULATED]
        assert total["count"] == STEPS * case.batch
        assert total["loss"] / total["count"] == pytest.approx(metrics[:, 0].mean(), rel=1e-4)
        losses[name] = metrics[:, 0]
    mean = losses["xla"].mean()
    own = np.abs(losses["chain"] - losses["xla"]).mean() / mean
    assert losses["persistent"][-5:].mean() < losses["persistent"][:5].mean()
    for name in ("chain", "xla"):
        error = np.abs(losses["persistent"] - losses[name]).mean() / mean
        assert error < 3 * own + 5e-3, (name, error, own)


def test_the_same_bits_every_time_however_the_steps_are_cut(case: Case) -> None:
    program = case.program("persistent")
    whole = []
    for _ in range(2):
        state, metrics = case.train(program, program.init(2), slice(0, 12))
        whole.append((bits(state), metrics.tobytes()))
    assert whole[0] == whole[1]
    state = program.init(2)
    for part in (slice(0, 1), slice(1, 12)):
        state, _ = case.train(program, state, part)
    sums = ("R_RESULT_ACCUMULATED",)  # added up launch by launch
    for name, value in bits(state).items():
        assert name.startswith(sums) or value == whole[0][0][name], name


def test_steps_that_overflow_change_the_scale_alone() -> None:
    base = CASES["adamw"]
    case = Case(base.hidden, base.activation, base.optimizer, base.batch, "float32",
                {"loss_scale": rn.LossScale(2.0**24)})  # fmt: skip
    found = []
    for loop in ("chain", "persistent"):
        program = case.program(loop)
        state, metrics = case.train(program, program.init(1), slice(0, 20))
        scale = float(state[Region.S_SCALAR_FP32]["loss_scale"])
        counters = {n: int(v) for n, v in state[Region.S_SCALAR_INT32].items() if n != "seed"}
        found.append((metrics[:, 4].tolist(), scale, counters))
    assert found[0] == found[1]
    assert 0 < sum(found[0][0]) < 20


def test_auto_is_persistent_here() -> None:
    case = CASES["adamw"]
    program = case.program("auto", "auto")
    state, _ = case.train(program, program.init(0), slice(0, 2))
    executable = program.backend.executable("train_steps", (2, case.batch, 28, 28, 1))
    assert "rn_mlp_train_steps" in (executable.compiled.as_text() or "")
    images, labels, indices = data_set()
    batch = VALUES[images[indices[0, : case.batch]]], labels[indices[0, : case.batch]]
    program.train_step(state, batch)  # single steps go on from there, launch by launch
