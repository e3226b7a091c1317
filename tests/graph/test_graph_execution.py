"""The graph computes the network's gradient, and does so inside the planned bytes.

A numpy interpreter gives every operation its plainest meaning. In float64 the graph's gradients
are compared with finite differences of its own loss; in the planned bytes, which start as NaN, the
result must not depend on where tensors lie or whose bytes they take over.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from renaissance.core.types import Region, Variant
from renaissance.graph.blueprint import (
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    Layer,
    add2,
    avgpool,
    block,
    bn,
    cbr,
    cbrp,
    channel_padding,
    conv,
    conv_dw,
    dropout,
    elu,
    fc,
    flatten,
    gap,
    gap_fc,
    group_conv,
    hardswish,
    identity,
    leaky_relu,
    maxpool,
    mbconv,
    relu,
    relu6,
    repeat,
    seq,
    sigmoid,
    silu,
    tanh_act,
)
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import INFERENCE_BEGIN, Ref, train_step, validation_step
from renaissance.graph.memory_plan import persistent_requirements
from tests.graph.interpreter import Exact, Memory, Planned, run
from tests.graph.random_trees import networks
from tests.graph.support import compiled

SHAPE = (7, 6, 3)

ADDS = seq(
    add2(seq(conv(4, 1), bn()), seq(conv(4, 3, 1, 1), tanh_act())),
    add2(identity(), add2(identity(), seq(conv(4, 1), silu()))),
    add2(add2(identity(), conv(4, 1)), add2(tanh_act(), identity())),
    gap(),
    fc(3),
)

NETWORKS: dict[str, Layer] = {
    "mlp": seq(fc(9), tanh_act(), fc(7), silu(), fc(6), hardswish(), fc(5), sigmoid(), fc(4)),
    "mlp_relus": seq(fc(9), relu(), fc(7), elu(), fc(6), leaky_relu(), fc(5), relu6(), fc(4)),
    "mlp_dropout": seq(fc(9), tanh_act(), dropout(0.5), fc(7), bn(), relu(), dropout(0), fc(4)),
    "convs": seq(conv(4, 3, 2, 1), conv_dw(3, 1, 1), silu(), group_conv(6, 2, 3), gap(), fc(3)),
    "pools": seq(conv(4, 3, 1, 1), maxpool(3, 2, 1), avgpool(2, 1, 1), flatten(), fc(3)),
    "norms": seq(cbr(4, 3, 1, 1), conv(5, 1), bn(), bn(), silu(), conv(3, 1), bn(), gap(), fc(3)),
    "pooled_unit": seq(cbrp(4, 3, 1, 1, 3, 2, 1), cbrp(4, 3, 1, 1, 2, 2, 0), gap_fc(3, True)),
    "padding": seq(channel_padding(), conv(4, 1), gap(), fc(3, bias=False)),
    "basic": seq(
        cbr(4, 3, 1, 1), repeat(block(4, RESNET_3_3), 2), block(6, RESNET_3_3_DS), gap_fc(3, True)
    ),
    "bottleneck": seq(
        cbr(4, 1, 1, 0), block(2, 6, RESNET_1_3_1), block(2, 8, RESNET_1_3_1_DS), gap_fc(3, True)
    ),
    "mobile": seq(
        cbr(4, 3, 2, 1), mbconv(1, 4, 1), mbconv(6, 5, 2), mbconv(6, 5, 1), gap_fc(3, True)
    ),
    "masks": seq(
        cbr(8, 3, 2, 1),
        block(8, RESNET_3_3),
        add2(seq(conv(8, 1), bn()), seq(conv(8, 1), bn())),
        relu6(),
        gap_fc(3, True),
    ),
    "adds": ADDS,
    "input_twice": seq(add2(conv(3, 1), seq(conv(3, 3, 1, 1), bn(), relu())), gap(), fc(3)),
    "input_shortcut": seq(add2(identity(), seq(conv(3, 1), bn())), relu(), gap(), fc(3)),
    "no_fc": seq(conv(4, 3), relu(), conv(3, 1), gap()),
}


def fill(result: CompiledGraph, memory: Memory) -> None:
    """Weights, statistics, scalars and a batch, the same whatever the memory."""
    rng = np.random.default_rng(5)
    plan = memory.plan
    logical = {name: spec.shape for name, spec, _ in result.plan.weights()}
    drawn = {n: rng.normal(size=s) * 0.6 + 0.1 for n, s in sorted(logical.items())}
    for requirement in persistent_requirements(result.plan, result.options):
        ref = requirement.ref
        shape = plan.tensor(ref).shape
        if ref.name in drawn and ref.region.name[0] in "WAE":
            extra = [(0, full - real) for full, real in zip(shape, logical[ref.name], strict=True)]
            memory.write(ref, np.pad(drawn[ref.name], extra))
        else:
            start = 1.0 if ref.region.name.endswith("VAR") or ref.name == "loss_scale" else 0.0
            memory.write(ref, np.full(shape, start))
    images = plan.tensor(Ref(Region.I_A_DATA, "images")).shape
    channels = result.options.input_channels
    batch = rng.normal(size=(*images[:3], channels))
    labels = rng.integers(0, result.plan.num_classes, len(batch))
    for slot in "AB":
        padded = np.pad(batch, ((0, 0), (0, 0), (0, 0), (0, images[3] - channels)))
        memory.write(Ref(Region[f"I_{slot}_DATA"], "images"), padded)
        memory.write(Ref(Region[f"I_{slot}_LABEL"], "labels"), labels)


def train(result: CompiledGraph, memory: Memory, slot: str = "A") -> float:
    """One forward and backward pass; the sum of the rows' losses."""
    frozen = result.options.first_layer_frozen
    run(result.graph.nodes(train_step(slot, first_layer_frozen=frozen)), memory)
    return float(memory.read(Ref(Region.R_RESULT, "loss")).sum())


def gradients(result: CompiledGraph, memory: Memory) -> dict[str, np.ndarray]:
    """The gradient of every trained weight, as the first writer left it."""
    found = {}
    for name, spec, _ in result.plan.weights():
        halves = result.options.amp and spec.group.has_compute_copy
        ref = Ref(spec.group.region("G16" if halves else "G"), name)
        if ref in memory.plan.tensors:
            found[name] = memory.read(ref)[tuple(slice(extent) for extent in spec.shape)]
    return found


def exact(result: CompiledGraph) -> Exact:
    memory = Exact(result.memory[Variant.TRAIN_BASE])
    fill(result, memory)
    return memory


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradients_are_the_derivative_of_the_mean_loss(name):
    result = compiled(NETWORKS[name], SHAPE, workspace_limit=0)
    memory = exact(result)
    train(result, memory)
    found = gradients(result, memory)
    rng, step = np.random.default_rng(1), 1e-6
    for weight, spec, _ in result.plan.weights():
        ref = Ref(spec.group.region("W"), weight)
        kept = memory.arrays[ref].copy()
        direction = rng.normal(size=kept.shape)
        sides = []
        for sign in (1, -1):
            memory.arrays[ref] = kept + sign * step * direction
            sides.append(train(result, memory))
        memory.arrays[ref] = kept
        slope = (sides[0] - sides[1]) / (2 * step) / result.options.batch
        assert (found[weight] * direction).sum() == pytest.approx(slope, rel=2e-4, abs=2e-7), weight


@pytest.mark.parametrize("name", NETWORKS)
def test_the_planned_bytes_give_the_same_gradients(name):
    result = compiled(NETWORKS[name], SHAPE)
    reference, planned = exact(result), Planned(result.memory[Variant.TRAIN_BASE])
    fill(result, planned)
    assert train(result, planned) == pytest.approx(train(result, reference), rel=1e-5)
    expected = gradients(result, reference)
    for weight, gradient in gradients(result, planned).items():
        assert_within(gradient, expected[weight], 2e-4, weight)


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_operations_mean_the_same_as_the_primitives_they_stand_for(name):
    plain = compiled(NETWORKS[name], SHAPE, amp=True, fuse=False)
    fused = compiled(NETWORKS[name], SHAPE, amp=True, fuse=True)
    memories = [exact(plain), exact(fused)]
    losses = [train(r, m) for r, m in zip((plain, fused), memories, strict=True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    expected = gradients(plain, memories[0])
    for weight, gradient in gradients(fused, memories[1]).items():
        np.testing.assert_allclose(gradient, expected[weight], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("fuse", [False, True])
def test_the_planned_bytes_hold_under_amp(name, fuse):
    result = compiled(NETWORKS[name], SHAPE, amp=True, fuse=fuse)
    reference, planned = exact(result), Planned(result.memory[Variant.TRAIN_BASE])
    fill(result, planned)
    assert train(result, planned) == pytest.approx(train(result, reference), rel=2e-2)
    for gradient in gradients(result, planned).values():
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_in_the_bytes_of_dead_features_are_the_same(name, amp, monkeypatch):
    monkeypatch.setattr("renaissance.graph.memory_plan.guests.SMALLEST_GUEST", 1)
    result = compiled(NETWORKS[name], SHAPE, amp=amp)
    result.memory[Variant.TRAIN_BASE].validate()
    reference, planned = exact(result), Planned(result.memory[Variant.TRAIN_BASE])
    fill(result, planned)
    assert train(result, planned) == pytest.approx(train(result, reference), rel=2e-2)
    expected = gradients(result, reference)
    for weight, gradient in gradients(result, planned).items():
        assert np.isfinite(gradient).all()
        if not amp:
            assert_within(gradient, expected[weight], 2e-4, weight)


def test_both_input_slots_give_the_same_step():
    result = compiled(NETWORKS["input_twice"], SHAPE)
    memories = [exact(result), exact(result)]
    losses = [train(result, m, slot) for m, slot in zip(memories, "AB", strict=True)]
    assert losses[0] == losses[1]
    first, second = (gradients(result, m) for m in memories)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_frozen_first_convolution_gets_no_gradient_and_the_others_keep_theirs():
    plain = compiled(NETWORKS["basic"], SHAPE)
    frozen = compiled(NETWORKS["basic"], SHAPE, first_layer_frozen=True)
    memories = [exact(plain), exact(frozen)]
    for result, memory in zip((plain, frozen), memories, strict=True):
        train(result, memory)
    all_of_them, rest = gradients(plain, memories[0]), gradients(frozen, memories[1])
    assert set(all_of_them) - set(rest) == {"conv1.weight"}
    assert all(np.array_equal(all_of_them[name], rest[name]) for name in rest)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("fuse", [False, True])
def test_inference_folds_batch_norms_and_runs_in_its_own_bytes(name, fuse):
    result = compiled(NETWORKS[name], SHAPE, amp=True, fuse=fuse, ema=True)
    reference, planned = exact(result), Planned(result.memory[Variant.VAL_BASE])
    fill(result, planned)
    for ema in (False, True):
        nodes = list(result.graph.nodes((*INFERENCE_BEGIN, *validation_step("A", ema=ema))))
        losses = []
        for memory in (reference, planned):
            run(nodes, memory)
            losses.append(float(memory.read(Ref(Region.R_RESULT, "loss")).sum()))
        assert losses[1] == pytest.approx(losses[0], rel=2e-2)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(max_layers=4), st.integers(2, 3))
def test_any_network_runs_in_its_planned_bytes(network, batch):
    layer, shape = network
    result = compiled(layer, shape, batch)
    reference, planned = exact(result), Planned(result.memory[Variant.TRAIN_BASE])
    fill(result, planned)
    with np.errstate(all="ignore"):
        loss = train(result, reference)
        written = train(result, planned)
    assert np.isfinite(written) == np.isfinite(loss)
    assert all(np.isfinite(g).all() for g in gradients(result, planned).values())


def assert_within(found: np.ndarray, expected: np.ndarray, tolerance: float, name: str) -> None:
    """Relative distance over the whole tensor; NaN fails."""
    distance = np.linalg.norm(found - expected)
    assert distance <= tolerance * np.linalg.norm(expected) + 1e-6, name
