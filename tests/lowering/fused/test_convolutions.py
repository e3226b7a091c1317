"""Convolutional networks through the fused lowering, whole steps against the reference."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import DType, Variant
from renaissance.lowering.calls.ffi import TYPE_NUMBERS
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused import convolutions, norms, pools
from renaissance.lowering.fused.passes import train_pass
from renaissance.program.fused import FusedBackend
from renaissance.runtime import library
from tests.lowering.native import on_device

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)
exact = pytest.mark.skipif(on_device(), reason="there XLA rounds fp32 convolutions to tf32")

ROWS, CLASSES = 6, 7
BLOCKS = {"resnet": rn.RESNET_1_3_1, "resnet_ds": rn.RESNET_1_3_1_DS, "basic": rn.RESNET_3_3}


def lenet() -> tuple[rn.Layer, tuple[int, int, int]]:
    maps = (rn.conv(6, 5, 1, 2), rn.tanh_act(), rn.avgpool(2, 2, 0), rn.conv(8, 5), rn.relu())
    return rn.seq(*maps, rn.maxpool(2, 2, 0), rn.fc(20), rn.relu(), rn.fc(CLASSES)), (14, 13, 1)


def vgg() -> tuple[rn.Layer, tuple[int, int, int]]:
    maps = (rn.cbr(8, 3, 1, 1), rn.maxpool(2, 2, 0), rn.cbr(12, 3, 1, 1), rn.maxpool(2, 2, 0))
    return rn.seq(*maps, rn.fc(20), rn.relu(), rn.dropout(0.2), rn.fc(CLASSES)), (9, 11, 3)


def resnet() -> tuple[rn.Layer, tuple[int, int, int]]:
    blocks = (rn.block(4, 16, BLOCKS["resnet"]), rn.block(4, 20, BLOCKS["resnet_ds"]))
    return rn.seq(rn.cbrp(16, 5, 2, 2, 3, 2, 1), *blocks, rn.gap(), rn.fc(CLASSES)), (21, 19, 3)


def mobilenet() -> tuple[rn.Layer, tuple[int, int, int]]:
    first = (rn.conv(8, 3, 2, 1), rn.bn(), rn.relu6(), rn.mbconv(6, 8, 1), rn.mbconv(1, 9, 2))
    last = (rn.relu6(), rn.gap(), rn.dropout(0.2), rn.fc(CLASSES))
    return rn.seq(*first, *last), (15, 17, 3)


def nin() -> tuple[rn.Layer, tuple[int, int, int]]:
    maps = (rn.conv(9, 5, 1, 2), rn.relu(), rn.conv(8, 1), rn.relu(), rn.maxpool(3, 2, 1))
    return rn.seq(*maps, rn.dropout(0.5), rn.conv(CLASSES, 3, 1, 1), rn.relu(), rn.gap()), (9, 8, 3)


def oddities() -> tuple[rn.Layer, tuple[int, int, int]]:
    """What no network of the catalogue has: pending norms at both ends of an add, and so on."""
    first = (
        rn.conv(6, 3, 2),
        rn.bn(),
        rn.silu(),
        rn.channel_padding(),
        rn.group_conv(8, 4, 3, 1, 1),
    )
    add = rn.add2(rn.seq(rn.conv(5, 1), rn.bn()), rn.seq(rn.conv(5, 3, 1, 1), rn.bn()))
    plain = rn.add2(rn.identity(), rn.conv(5, 3, 1, 1))
    middle = (rn.leaky_relu(), rn.avgpool(3, 2, 1), add, rn.silu(), plain, rn.tanh_act())
    return rn.seq(*first, *middle, rn.flatten(), rn.bn(), rn.fc(CLASSES)), (13, 12, 2)


NETS = {f.__name__: f for f in (lenet, vgg, resnet, mobilenet, nin, oddities)}


def batch(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((ROWS, *shape)).astype(np.float32)
    return images, rng.integers(0, CLASSES, ROWS).astype(np.int32)


def compiled(name: str, amp: bool, lowering: str) -> rn.Program:
    net, shape = NETS[name]()
    options: dict[str, Any] = {"amp": amp, "num_classes": CLASSES, "val_batch_size": ROWS}
    options["loss_scale"] = rn.LossScale(initial=256.0)
    return rn.compile(
        net, shape, ROWS, lowering=lowering, optimizer=rn.SGD(momentum=0.9),
        scheduler=rn.Constant(0.01), **options,
    )  # fmt: skip


@contextmanager
def quickly(lowering: str) -> Iterator[None]:
    """The reference is compiled for one step only."""
    jax.config.update("jax_disable_most_optimizations", lowering == "xla")
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


@functools.cache
def after_a_step(name: str, amp: bool, lowering: str) -> tuple[dict[str, Any], float, float]:
    """Every tensor after one step, the step's loss, and the loss of inference behind it."""
    program = compiled(name, amp, lowering)
    shape = NETS[name]()[1]
    with quickly(lowering):
        state, metrics = program.train_step(program.init(1), batch(shape))
        leaves = {f"{r.name} {n}": np.asarray(v, np.float64) for r, n, v in state.named_leaves()}
        loss = program.evaluate(state, batch(shape, 1))["loss"]
    return leaves, float(metrics["loss"]), float(loss)


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], limit: float) -> None:
    """Tensor by tensor, relative to its norm. A gradient that is zero in exact arithmetic (of a
    shift in front of a norm) is noise in both: it is measured by the largest of its region."""
    largest: dict[str, float] = {}
    for name, value in theirs.items():
        region = name.split()[0]
        largest[region] = max(largest.get(region, 0.0), float(np.linalg.norm(value)))
    for name, value in theirs.items():
        size = max(float(np.linalg.norm(value)), 0.01 * largest[name.split()[0]], 1e-12)
        error = float(np.linalg.norm(ours[name] - value)) / size
        assert error <= limit, f"{name} differs by {error}"


@exact
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "nin", "oddities"])
def test_a_step_in_fp32_equals_the_reference(name: str) -> None:
    ours, loss, later = after_a_step(name, False, "fused")
    theirs, expected, expected_later = after_a_step(name, False, "xla")
    assert loss == pytest.approx(expected, rel=1e-6)
    assert later == pytest.approx(expected_later, rel=1e-5)
    assert_same(ours, theirs, 3e-5)


@pytest.mark.parametrize("name", ["lenet", "vgg"])
def test_a_step_in_fp16_equals_the_reference(name: str) -> None:
    ours, loss, later = after_a_step(name, True, "fused")
    theirs, expected, expected_later = after_a_step(name, True, "xla")
    assert loss == pytest.approx(expected, rel=1e-3)
    assert later == pytest.approx(expected_later, rel=1e-3)
    assert_same(ours, theirs, 3e-3)


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "nin", "oddities"])
def test_a_step_in_fp16_stays_by_the_one_in_fp32(name: str) -> None:
    """With every pass fused. Rounding moves a few pixels across a kink of their activation; behind
    norms over few pixels that is what a gradient differs by, and a wrong mask is far beyond it."""
    ours, loss, later = after_a_step(name, True, "fused")
    exact, expected, expected_later = after_a_step(name, False, "fused")
    assert loss == pytest.approx(expected, rel=2e-3)
    assert later == pytest.approx(expected_later, rel=1e-2)
    shared = {n: v for n, v in exact.items() if n.startswith("M_") and ours[n].shape == v.shape}
    assert shared
    assert_same(ours, shared, 0.1)


def test_every_operation_on_maps_is_in_one_of_these_networks() -> None:
    used = set()
    for name in NETS:
        for amp in (False, True):
            used |= {node.op for part in compiled(name, amp, "xla").graph.graph for node in part}
    on_maps = {*convolutions.LOWERINGS, *norms.LOWERINGS, *pools.LOWERINGS}
    on_maps |= {"add_forward", "gradient_sum"}
    on_maps |= {"channel_padding_forward", "channel_padding_backward"}
    missing = on_maps - used
    assert missing <= {"group_conv_statistics_forward", "group_conv_affine_forward"}


def test_banks_stay_in_place_over_steps_and_loops() -> None:
    program = compiled("mobilenet", True, "fused")
    shape = NETS["mobilenet"]()[1]
    state, _ = program.train_step(program.init(0), batch(shape))
    addresses = {bank: array.unsafe_buffer_pointer() for bank, array in state.banks.items()}
    state, _ = program.train_step(state, batch(shape, 1))
    for bank, array in state.banks.items():
        assert array.unsafe_buffer_pointer() == addresses[bank], bank
    assert isinstance(program.backend, FusedBackend)


def test_two_runs_give_the_same_bits() -> None:
    program = compiled("resnet", True, "fused")
    shape = NETS["resnet"]()[1]
    hashes = []
    for _ in range(2):
        state, _ = program.train_step(program.init(0), batch(shape))
        state, _ = program.train_step(state, batch(shape, 1))
        hashes.append(program.sha256(state))
    assert hashes[0] == hashes[1]


def test_many_steps_in_one_executable_equal_single_steps() -> None:
    program = compiled("lenet", False, "fused")
    shape = NETS["lenet"]()[1]
    single, looped = program.init(2), program.init(2)
    batches = [batch(shape, seed) for seed in range(3)]
    for one in batches:
        single, _ = program.train_step(single, one)
    stacked = tuple(np.stack(parts) for parts in zip(*batches, strict=True))
    looped, _ = program.train_steps(looped, stacked)
    assert program.sha256(single) == program.sha256(looped)


def test_an_overflow_leaves_weights_moments_and_running_statistics() -> None:
    program = compiled("mobilenet", True, "fused")
    shape = NETS["mobilenet"]()[1]
    state, _ = program.train_step(program.init(3), batch(shape))
    before = {(r, n): np.array(v) for r, n, v in state.named_leaves()}
    images, labels = batch(shape, 1)
    images[2, 1, 1, 0] = np.inf
    state, metrics = program.train_step(state, (images, labels))
    assert bool(metrics["skipped"])
    for (region, name), value in before.items():
        if region.name.startswith(("W_", "M_", "A_", "B_")):
            np.testing.assert_array_equal(state[region][name], value, err_msg=f"{region} {name}")


@pytest.mark.parametrize("name", ["vgg", "mobilenet"])
@pytest.mark.parametrize("amp", [False, True])
def test_fewer_passes_change_no_bit(name: str, amp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_device() and amp and name == "mobilenet":
        pytest.skip("there a fused kernel sums its statistics in another order")
    shape, hashes = NETS[name]()[1], []
    for simplified in (True, False):
        monkeypatch.setattr(
            "renaissance.program.fused.train_pass",
            lambda graph, scene, s=simplified: train_pass(graph, scene, simplified=s),
        )
        program = compiled(name, amp, "fused")
        state = program.init(3)
        for step in range(2):
            state, _ = program.train_step(state, batch(shape, step))
        hashes.append(program.sha256(state))
    assert hashes[0] == hashes[1]


def test_gradients_are_read_where_they_were_made_and_never_cleared() -> None:
    program = compiled("resnet", True, "fused")
    scene = Scene(program.memory, program.backend.recipe)
    names = [call.target.name for call in train_pass(program.graph, scene).calls]
    assert names[0] == "rn_begin_step"
    statistics = names.index("rn_check_finite") + 1
    assert names[statistics:] == ["rn_copy", "rn_optimizer", "rn_end_step"]
    assert not {"rn_clear", "rn_cast", "rn_check_and_unscale"} & set(names)


def test_types_of_operands_are_the_plans() -> None:
    program = compiled("nin", True, "fused")
    assert isinstance(program.backend, FusedBackend)
    scene = Scene(program.graph.memory[Variant.TRAIN_BASE], program.backend.recipe)
    calls = train_pass(program.graph, scene).calls
    head = next(c for c in calls if c.target.name == "rn_global_average_pool_forward")
    half, single = TYPE_NUMBERS[DType.FP16], TYPE_NUMBERS[DType.FP32]
    assert (head.attributes["type"], head.attributes["y_type"]) == (half, single)
