"""The train step as a specification: what moves, what stays, and in which units."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import GraphId, Region
from renaissance.runtime.executables import alias_map
from tests.program.support import SHAPE, bits, random_batch, small_net, small_program

COUNTERS = {"applied_steps", "skipped_steps", "clean_steps", "overflow_run", "nan_flag"}


def counters(state: object) -> dict[str, int]:
    return {n: int(state[Region.S_SCALAR_INT32][n]) for n in COUNTERS}  # type: ignore[index]


@pytest.mark.parametrize("options", [{}, {"amp": True, "ema": 0.9}], ids=["fp32", "amp"])
def test_every_leaf_of_the_state_aliases_its_own_input(options: dict) -> None:
    program = small_program(**options)
    state = program.init(0)
    leaves = len(jax.tree.leaves(state))
    program.train_step(state, random_batch(0))
    executable = program.backend.executable("train_step", (8, *SHAPE))
    granted = alias_map(executable.compiled)
    assert {i: granted.get(i) for i in range(leaves)} == {i: i for i in range(leaves)}


def test_a_step_is_the_gradient_through_apply_and_the_rule() -> None:
    program = small_program(optimizer=rn.SGD(), loss=rn.CrossEntropy(0.1))
    state = program.init(1)
    params = program.params(state)
    images, labels = random_batch(2)

    def loss(params: dict) -> jax.Array:
        logits = program.apply(params, images, train=True)
        target = 0.9 * jax.nn.one_hot(labels, 5) + 0.1 / 5
        return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), axis=-1))

    value, gradients = jax.value_and_grad(loss)(params)
    state, metrics = program.train_step(state, (images, labels))
    np.testing.assert_allclose(metrics["loss"], value, rtol=1e-6)
    for name, after in program.params(state).items():
        np.testing.assert_allclose(after, params[name] - 0.05 * gradients[name], atol=1e-7)


def test_stacked_steps_are_the_same_steps() -> None:
    program = small_program(ema=0.9, amp=True)
    batches = [random_batch(i) for i in range(4)]
    one = program.init(3)
    losses = []
    for batch in batches:
        one, metrics = program.train_step(one, batch)
        losses.append(float(metrics["loss"]))
    images, labels = (np.stack(column) for column in zip(*batches, strict=True))
    many, metrics = program.train_steps(program.init(3), (images, labels))
    np.testing.assert_allclose(metrics["loss"], losses, rtol=2e-3)
    for name, value in program.params(one).items():
        np.testing.assert_allclose(program.params(many)[name], value, rtol=2e-3, atol=2e-4)


def test_the_rate_follows_the_schedule_by_applied_steps() -> None:
    schedule = rn.CosineAnnealing(1.0, eta_min=0.0)
    program = small_program(scheduler=schedule, epochs=5, steps_per_epoch=1)
    state, rates = program.init(0), []
    for i in range(7):
        state, metrics = program.train_step(state, random_batch(i))
        rates.append(float(metrics["lr"]))
    expected = [1, 0.9045, 0.6545, 0.3455, 0.0955, 0.0955, 0.0955]
    np.testing.assert_allclose(rates, expected, atol=5e-5)


def test_epoch_sums_weigh_batches_by_their_rows() -> None:
    program = small_program(batch=4, last_batch_size=2, scheduler=rn.Constant(0.0))
    state = program.clear_metrics(program.init(0))
    total = 0.0
    for i, rows in enumerate((4, 4, 2)):
        state, metrics = program.train_step(state, random_batch(i, rows))
        total += float(metrics["loss"]) * rows
    epoch = program.epoch_metrics(state)
    assert epoch["count"] == 10
    np.testing.assert_allclose(epoch["loss"], total / 10, rtol=1e-6)
    assert program.epoch_metrics(program.clear_metrics(state))["count"] == 0


@pytest.mark.parametrize(
    ("region", "name"),
    [
        (Region.A_FIRST_CONV, "conv1.weight"),
        (Region.W_BN_WEIGHT, "bn1.weight"),
        (Region.W_BN_BIAS, "bn1.bias"),
        (Region.W_FC_BIAS, "fc1.bias"),
        (Region.A_FC_WEIGHT, "fc1.weight"),
    ],
)
def test_an_overflow_in_any_region_skips_exactly_that_step(region: Region, name: str) -> None:
    program = small_program(amp=True, ema=0.9)
    state, _ = program.train_step(program.init(0), random_batch(0))
    healthy = dict(state.region(region))
    poisoned = {**healthy, name: healthy[name].at[(0,) * healthy[name].ndim].set(jnp.inf)}
    state = state.replace({region: poisoned})
    before = bits(state)
    state, metrics = program.train_step(state, random_batch(1))
    after = bits(state)
    assert bool(metrics["skipped"])
    # R_RESULT is of this batch alone; A is a copy of W, refreshed in every step
    moved = {
        leaf
        for leaf in after
        if after[leaf] != before[leaf] and not leaf.startswith(("R_RESULT/", "A_"))
    }
    assert moved <= {
        "S_SCALAR_FP32/loss_scale",
        "S_SCALAR_INT32/clean_steps",
        "S_SCALAR_INT32/nan_flag",
        "S_SCALAR_INT32/overflow_run",
        "S_SCALAR_INT32/skipped_steps",
    }
    assert float(state[Region.S_SCALAR_FP32]["loss_scale"]) == 2.0**14
    assert counters(state)["skipped_steps"] == 1
    state, metrics = program.train_step(state.replace({region: healthy}), random_batch(2))
    assert not bool(metrics["skipped"])
    assert counters(state) == {
        "applied_steps": 2,
        "skipped_steps": 1,
        "clean_steps": 1,
        "overflow_run": 0,
        "nan_flag": 0,
    }


def test_a_non_finite_image_skips_the_step_in_fp32_too() -> None:
    program = small_program()
    images, labels = random_batch(0)
    images[0, 0, 0, 0] = np.nan
    state = program.init(0)
    before = program.sha256(state)
    state, metrics = program.train_step(state, (images, labels))
    assert bool(metrics["skipped"])
    assert program.sha256(state) == before
    assert float(state[Region.S_SCALAR_FP32]["loss_scale"]) == 1.0


def test_too_many_overflows_in_a_row_stop_the_run() -> None:
    program = small_program(loss_scale=rn.LossScale(max_overflows=3))
    images, labels = random_batch(0)
    state = program.init(0)
    for _ in range(3):
        program.check_progress(state)
        state, _ = program.train_step(state, (images * np.inf, labels))
    with pytest.raises(rn.TrainingDiverged, match="3 steps in a row"):
        program.check_progress(state)


def test_powers_of_two_as_loss_scale_give_the_same_bits() -> None:
    """Where nothing overflows or falls into fp16's subnormals, the scale leaves no trace."""
    net = rn.seq(rn.fc(16), rn.relu(), rn.fc(5))
    hashes = set()
    for exponent in (4, 6, 8):
        program = rn.compile(
            net,
            (1, 1, 8),
            4,
            amp=True,
            optimizer=rn.SGD(momentum=0.9),
            scheduler=rn.Constant(0.1),
            loss_scale=rn.LossScale(initial=2.0**exponent),
        )
        state = program.init(0)
        for i in range(10):
            images, labels = random_batch(i, 4, (1, 1, 8))
            state, metrics = program.train_step(state, (np.abs(images) + 0.5, labels))
            assert not bool(metrics["skipped"])
        hashes.add(program.sha256(state))
    assert len(hashes) == 1


def test_the_average_is_a_convex_mix_of_the_weights() -> None:
    program = small_program(ema=0.75)
    state = program.init(0)
    average = program.params(state)
    for i in range(3):
        state, _ = program.train_step(state, random_batch(i))
        weights = program.params(state)
        average = {n: 0.75 * e + 0.25 * weights[n] for n, e in average.items()}
    for name, value in program.ema_params(state).items():
        np.testing.assert_allclose(value, average[name], rtol=1e-6, atol=1e-8)


def test_a_frozen_first_layer_keeps_its_bits() -> None:
    program = small_program(freeze_first_layer=True)
    state = program.init(0)
    before = program.params(state)
    for i in range(3):
        state, _ = program.train_step(state, random_batch(i))
    after = program.params(state)
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed == set(before) - {"conv1.weight"}
    assert GraphId.FIRST_LAYER_BWD_A not in program.backend.order


@pytest.mark.parametrize("clip", [rn.ClipByValue(1e-3), rn.ClipByGlobalNorm(1e-3)])
def test_clipping_bounds_the_update(clip: object) -> None:
    program = small_program(optimizer=rn.SGD(), scheduler=rn.Constant(1.0), grad_clip=clip)
    state = program.init(0)
    before = program.params(state)
    state, _ = program.train_step(state, random_batch(0))
    after = program.params(state)
    steps = np.concatenate([(after[n] - before[n]).ravel() for n in before])
    bound = np.abs(steps).max() if isinstance(clip, rn.ClipByValue) else np.linalg.norm(steps)
    assert 0.9e-3 < bound <= 1.001e-3


def test_dropout_draws_a_new_mask_every_step() -> None:
    net = rn.seq(rn.flatten(), rn.dropout(0.5), rn.fc(5))
    program = rn.compile(net, SHAPE, 8, scheduler=rn.Constant(0.0))
    batch = random_batch(0)
    losses = set()
    state = program.init(0)
    for _ in range(4):
        state, metrics = program.train_step(state, batch)
        losses.add(float(metrics["loss"]))
    assert len(losses) == 4
    again, metrics = program.train_step(program.init(0), batch)
    assert float(metrics["loss"]) in losses


def test_inference_uses_running_statistics_and_counts_rows() -> None:
    program = small_program(val_batch_size=5, val_last_batch_size=3)
    state = program.init(0)
    for i in range(20):
        state, _ = program.train_step(state, random_batch(i))
    batches = [random_batch(50, 5), random_batch(51, 5), random_batch(52, 3)]
    metrics = program.evaluate(state, batches)
    assert metrics["count"] == 13
    hits, loss = 0, 0.0
    for images, labels in batches:
        logits = program.apply(program.params(state), images, program.statistics(state))
        hits += int((np.argmax(logits, -1) == labels).sum())
        loss -= float(jnp.sum(jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]))
        np.testing.assert_array_equal(program.predict(state, images), np.argmax(logits, -1))
    assert metrics["top1"] == hits / 13
    assert metrics["top5"] == 1.0
    np.testing.assert_allclose(metrics["loss"], loss / 13, rtol=1e-5)


def test_fp64_trains_in_fp64() -> None:
    with jax.enable_x64(True):
        program = rn.compile(small_net(), SHAPE, 8, precision="fp64")
        state = program.init(0)
        state, metrics = program.train_step(state, random_batch(0))
        assert {v.dtype for v in program.params(state).values()} == {np.dtype("float64")}
