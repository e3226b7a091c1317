"""The fused lowering against the reference, in place, on whatever device is at hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.errors import PlanError
from renaissance.core.types import Bank, Region, Variant
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import (
    Argument,
    InPlaceCall,
    Location,
    check_places,
    thread,
)
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.nodes import LOWERINGS
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.rewrites import joined_banks
from renaissance.lowering.state import ArrayState
from renaissance.runtime import library
from renaissance.runtime.arena import BankState
from tests.lowering.native import relative_error

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

SHAPE, CLASSES, ROWS = (5, 3, 1), 7, 13
OPTIMIZERS = [
    rn.SGD(weight_decay=0.01),
    rn.SGD(momentum=0.9, nesterov=True, weight_decay=0.01),
    rn.LARS(weight_decay=0.1),
    rn.Adam(weight_decay=0.01),
    rn.AdamW(weight_decay=0.01),
]


def mlp(*extra: rn.Layer) -> rn.Layer:
    """Odd widths, activations whose derivative needs the output and such that need the input."""
    hidden = (rn.fc(33), rn.relu(), rn.fc(21), rn.silu(), *extra, rn.fc(18), rn.tanh_act())
    return rn.seq(rn.flatten(), *hidden, rn.fc(CLASSES))


def pair(net: rn.Layer, **options: Any) -> tuple[rn.Program, rn.Program]:
    """The same program in the reference lowering and in the fused one."""
    defaults = {"optimizer": rn.AdamW(), "scheduler": rn.Constant(0.01)}
    arguments = {**defaults, **options, "last_batch_size": 5, "val_batch_size": ROWS}
    reference = rn.compile(net, SHAPE, ROWS, lowering="xla", **arguments)
    return reference, rn.compile(net, SHAPE, ROWS, lowering="fused", **arguments)


def batch(seed: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((rows, *SHAPE)).astype(np.float32)
    return images, rng.integers(0, CLASSES, rows).astype(np.int32)


def assert_same_state(ours: Any, theirs: ArrayState, limit: float) -> None:
    for region, name, value in theirs.named_leaves():
        error = relative_error(ours[region][name], value)
        assert error <= limit, f"{region.name}[{name}] differs by {error}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_a_step_in_fp32_equals_the_reference(optimizer: Any) -> None:
    reference, fused = pair(
        mlp(),
        optimizer=optimizer,
        loss=rn.CrossEntropy(label_smoothing=0.1),
        ema=0.9,
        grad_clip=rn.ClipByValue(0.02),
    )
    theirs, ours = reference.init(1), fused.init(1)
    for step in range(2):
        theirs, expected = reference.train_step(theirs, batch(step))
        ours, metrics = fused.train_step(ours, batch(step))
        for name, value in expected.items():
            assert relative_error(metrics[name], value) <= 1e-5, name
    assert_same_state(ours, theirs, 1e-5)


@pytest.mark.parametrize("optimizer", [rn.SGD(momentum=0.9), rn.LARS()], ids=repr)
def test_a_step_in_fp16_equals_the_reference(optimizer: Any) -> None:
    reference, fused = pair(mlp(), optimizer=optimizer, amp=True, ema=0.9)
    theirs, ours = reference.init(1), fused.init(1)
    theirs, expected = reference.train_step(theirs, batch(0))
    ours, metrics = fused.train_step(ours, batch(0))
    for name, value in expected.items():
        assert relative_error(metrics[name], value) <= 2e-3, name
    # one step's momentum is the gradient itself
    assert_same_state(ours, theirs, 2e-3 if optimizer.slots.norms is False else 4e-3)


def test_dropout_draws_the_masks_of_the_reference() -> None:
    net = rn.seq(rn.flatten(), rn.fc(33), rn.relu(), rn.dropout(0.3), rn.fc(CLASSES))
    reference, fused = pair(net, optimizer=rn.SGD())
    theirs, ours = reference.init(1), fused.init(1)
    for step in range(2):
        theirs, _ = reference.train_step(theirs, batch(step))
        ours, _ = fused.train_step(ours, batch(step))
    assert_same_state(ours, theirs, 1e-5)


@pytest.mark.parametrize("amp", [False, True])
def test_fewer_launches_change_no_bit(amp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"amp": amp, "ema": 0.9, "grad_clip": rn.ClipByValue(0.05)}
    states = []
    for simplified in (True, False):
        _, fused = pair(mlp(rn.dropout(0.2)), **options)
        monkeypatch.setattr(
            "renaissance.program.fused.train_pass",
            lambda graph, scene, s=simplified: train_pass(graph, scene, simplified=s),
        )
        state = fused.init(3)
        for step in range(3):
            state, _ = fused.train_step(state, batch(step))
        states.append({(r, n): v for r, n, v in state.named_leaves()})
    for place, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][place], err_msg=str(place))


def test_an_mlp_in_fp16_takes_twelve_calls_a_step() -> None:
    hidden = (layer for width in (64, 48, 32) for layer in (rn.fc(width), rn.relu()))
    _, fused = pair(rn.seq(rn.flatten(), *hidden, rn.fc(CLASSES)), amp=True)
    backend = fused.backend
    scene = Scene(fused.memory, backend.recipe)
    names = [call.target.name for call in train_pass(fused.graph, scene).calls]
    forward, backward = ["rn_fc_forward"] * 4, ["rn_fc_backward"] * 4
    begin, middle, end = "rn_begin_step", "rn_softmax_cross_entropy", "rn_end_step"
    assert names == [begin, *forward, middle, *backward, "rn_optimizer", end]


@pytest.mark.parametrize("amp", [False, True])
def test_many_steps_in_one_executable_equal_single_steps(amp: bool) -> None:
    _, fused = pair(mlp(), amp=amp)
    single, looped = fused.init(5), fused.init(5)
    batches = [batch(seed) for seed in range(4)]
    losses = []
    for one in batches:
        single, metrics = fused.train_step(single, one)
        losses.append(float(metrics["loss"]))
    stacked = tuple(np.stack(parts) for parts in zip(*batches, strict=True))
    looped, metrics = fused.train_steps(looped, stacked)
    np.testing.assert_array_equal(metrics["loss"], np.array(losses, np.float32))
    assert fused.sha256(single) == fused.sha256(looped)


def test_a_last_batch_of_fewer_rows_trains_on_the_same_banks() -> None:
    reference, fused = pair(mlp())
    theirs, ours = reference.init(2), fused.init(2)
    for one in (batch(0), batch(1, rows=5), batch(2)):
        theirs, expected = reference.train_step(theirs, one)
        ours, metrics = fused.train_step(ours, one)
        assert float(metrics["count"]) == float(expected["count"])
    assert_same_state(ours, theirs, 1e-5)


@pytest.mark.parametrize("amp", [False, True])
def test_inference_equals_the_reference_and_leaves_the_state_usable(amp: bool) -> None:
    reference, fused = pair(mlp(), amp=amp, ema=0.5)
    theirs, ours = reference.init(4), fused.init(4)
    theirs, _ = reference.train_step(theirs, batch(0))
    ours, _ = fused.train_step(ours, batch(0))
    before = fused.sha256(ours)
    limit = 2e-3 if amp else 1e-5
    for ema in (False, True):
        expected = reference.evaluate(theirs, batch(1), ema=ema)
        result = fused.evaluate(ours, batch(1), ema=ema)
        assert result["count"] == expected["count"]
        assert result["loss"] == pytest.approx(expected["loss"], rel=limit)
    np.testing.assert_array_equal(
        fused.predict(ours, batch(1)[0]), reference.predict(theirs, batch(1)[0])
    )
    assert fused.sha256(ours) == before
    fused.train_step(ours, batch(2))


def test_an_overflow_changes_nothing_but_the_scale_and_the_counters() -> None:
    _, fused = pair(mlp(), amp=True, ema=0.9)
    state, _ = fused.train_step(fused.init(6), batch(0))
    before = {(r, n): v for r, n, v in state.named_leaves()}
    images, labels = batch(1)
    images[3] = np.inf
    state, metrics = fused.train_step(state, (images, labels))
    assert bool(metrics["skipped"])
    counters = state[Region.S_SCALAR_INT32]
    assert (counters["skipped_steps"], counters["applied_steps"]) == (1, 1)
    assert state[Region.S_SCALAR_FP32]["loss_scale"] == 2.0**14
    for (region, name), value in before.items():
        if region.name.startswith(("W_", "M_", "V_", "E_", "A_")) or "ACCUMULATED" in region.name:
            np.testing.assert_array_equal(state[region][name], value, err_msg=f"{region} {name}")


def test_states_of_both_lowerings_convert_without_loss() -> None:
    reference, fused = pair(mlp(), amp=True, ema=0.9)
    theirs, _ = reference.train_step(reference.init(7), batch(0))
    banked = fused.backend.adopt(theirs)
    for region, name, value in theirs.named_leaves():
        np.testing.assert_array_equal(banked[region][name], value)
    assert fused.sha256(banked) == reference.sha256(theirs)


def test_every_bank_stays_in_place_and_nothing_is_set_aside() -> None:
    _, fused = pair(mlp(rn.dropout(0.1)), amp=True)
    state = fused.init(0)
    state, _ = fused.train_step(state, batch(0))
    addresses = {bank: array.unsafe_buffer_pointer() for bank, array in state.banks.items()}
    state, _ = fused.train_step(state, batch(1))
    stacked = tuple(part[None] for part in batch(2))
    state, _ = fused.train_steps(state, stacked)
    fused.evaluate(state, batch(3))
    for bank, array in state.banks.items():
        assert array.unsafe_buffer_pointer() == addresses[bank], bank


@pytest.mark.parametrize("most", [0, joined_banks.JOINED_BYTES], ids=["apart", "joined"])
@pytest.mark.parametrize("amp", [False, True])
def test_no_call_writes_outside_its_tensors(
    amp: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_banks, "JOINED_BYTES", most)
    _, fused = pair(mlp(rn.dropout(0.1)), amp=amp)
    state = fused.init(0)
    home = Bank.PERSISTENT if most else Bank.SCRATCH
    base = joined_banks.bases_of(fused.memory).get(Bank.SCRATCH, 0)
    marked = np.array(state.banks[home])
    free = np.zeros(marked.shape, bool)
    free[base : base + fused.memory.bank_bytes(Bank.SCRATCH)] = True
    for tensor in fused.memory.tensors.values():
        if tensor.bank is Bank.SCRATCH:
            # calls on whole regions of gradients work on the padding between them, which is zero
            end = (
                tensor.end if tensor.region.name.startswith("G_") else tensor.offset + tensor.nbytes
            )
            free[base + tensor.offset : base + end] = False
    assert free.sum() > 256
    marked[free] = 0xAB
    banks = {**state.banks, home: jax.numpy.array(marked, copy=True)}
    state = BankState(state.arena, banks)
    for step in range(2):
        state, _ = fused.train_step(state, batch(step))
    fused.evaluate(state, batch(2))
    assert (np.asarray(state.banks[home])[free] == 0xAB).all()


def test_joined_banks_give_the_bits_of_banks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (joined_banks.JOINED_BYTES, 0):
        monkeypatch.setattr(joined_banks, "JOINED_BYTES", most)
        _, fused = pair(mlp(rn.dropout(0.1)), amp=True)
        state, _ = fused.train_step(fused.init(0), batch(0))
        assert len(state.arrays) == (1 if most else 3)
        stacked = tuple(part[None] for part in batch(1))
        state, metrics = fused.train_steps(state, stacked)
        found.append((fused.sha256(state), metrics["loss"], fused.evaluate(state, batch(2))))
    np.testing.assert_equal(found[0], found[1])


def test_a_donated_state_is_refused_by_name() -> None:
    _, fused = pair(mlp())
    state = fused.init(0)
    fused.train_step(state, batch(0))
    with pytest.raises(ValueError, match=r"bank PERSISTENT was given to an earlier call"):
        fused.train_step(state, batch(1))


def test_an_operation_without_a_kernel_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOWERINGS, "activation_forward")
    with pytest.raises(PlanError, match=r"of relu1 in the fused lowering is 'activation_forward'"):
        pair(mlp())


@pytest.mark.parametrize("max_norm", [1e-3, 1e3])
def test_gradients_are_clipped_by_their_joint_norm(max_norm: float) -> None:
    clip = rn.ClipByGlobalNorm(max_norm)
    reference, fused = pair(mlp(), optimizer=rn.SGD(momentum=0.9), grad_clip=clip)
    theirs, _ = reference.train_step(reference.init(1), batch(0))
    ours, _ = fused.train_step(fused.init(1), batch(0))
    assert_same_state(ours, theirs, 1e-5)
    moments = [ours[r][n] for r in (Region.M_FC_BIAS, Region.M_FC_WEIGHT) for n in ours[r]]
    norm = np.sqrt(sum(np.sum(np.square(m, dtype=np.float64)) for m in moments))
    assert norm == pytest.approx(max_norm, rel=1e-5) if max_norm < 1 else norm < max_norm


def test_a_call_outside_its_bank_is_refused() -> None:
    call = InPlaceCall(targets.CLEAR, (Location(Bank.SCRATCH, 256, 512, "T_TEMP x"),), {}, "fc1")
    with pytest.raises(PlanError, match=r"bytes of T_TEMP x in rn_clear of fc1 is \(256, 768\)"):
        check_places([call], {Bank.SCRATCH: 512})


def test_a_bank_appears_once_in_a_call_however_many_operands_lie_in_it() -> None:
    places = tuple(Location(Bank.SCRATCH, offset, 256, "x") for offset in (0, 256))
    call = InPlaceCall(targets.COPY, (*places, None), {"bytes": 256})

    def function(bank: jax.Array) -> jax.Array:
        return thread([call], {Bank.SCRATCH: bank}, {})[0][Bank.SCRATCH]

    if jax.default_backend() == "cpu":
        data = np.arange(512, dtype=np.uint8)
        after = np.asarray(jax.jit(function)(data))
        np.testing.assert_array_equal(after, np.concatenate([data[:256], data[:256]]))
    text = jax.jit(function).lower(jax.ShapeDtypeStruct((512,), np.uint8)).as_text()
    assert text.count("tensor<512xui8>) -> tensor<512xui8>") >= 1


def test_offsets_are_the_plans_and_equal_in_all_variants() -> None:
    _, fused = pair(mlp())
    plans = [fused.graph.memory[v] for v in (Variant.TRAIN_BASE, Variant.TRAIN_LAST)]
    passes = [train_pass(fused.graph, Scene(plan, fused.backend.recipe)) for plan in plans]
    for full, last in zip(passes[0].calls, passes[1].calls, strict=True):
        for a, b in zip(full.operands, last.operands, strict=True):
            if isinstance(a, Location):
                assert isinstance(b, Location) and (a.bank, a.offset) == (b.bank, b.offset)
            else:
                assert a is None or isinstance(a, Argument)
