"""Whole networks: the residual stack, statistics, dropout, stored channels, errors with names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance import ops
from renaissance.core.errors import PlanError, ShapeError
from renaissance.core.types import Shape
from renaissance.graph import blueprint as b
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.layer import ArchLayer
from renaissance.graph.params import Empty
from renaissance.lowering.network import (
    forward_infer,
    forward_train,
    initial_statistics,
    run_layers,
)
from renaissance.lowering.registry import lowering_of
from renaissance.ops import ConvBn
from renaissance.testing import assert_within, golden_normal

Arrays = dict[str, Any]


def weights_of(plan: ArchPlan) -> Arrays:
    """Small random weights; scales near 1."""
    return {
        name: jnp.asarray(
            golden_normal(name, spec.shape) * 0.3
            + float(name.startswith("bn") and spec.name == "weight"),
            jnp.float32,
        )
        for name, spec, _ in plan.weights()
    }


def images(*shape: int) -> jax.Array:
    return jnp.asarray(golden_normal("images", shape), jnp.float32)


def train(plan: ArchPlan, x: jax.Array, step: int = 0, weights: Arrays | None = None) -> Any:
    """One jitted pass in training."""
    run = jax.jit(lambda w, s, x, step: forward_train(plan, w, s, x, seed=1, step=step))
    return run(weights or weights_of(plan), initial_statistics(plan), x, step)


def infer(plan: ArchPlan, x: jax.Array, weights: Arrays, statistics: Arrays) -> jax.Array:
    return jax.jit(lambda w, s, x: forward_infer(plan, w, s, x))(weights, statistics, x)


def unit(
    weights: Arrays, number: int, kind: str = "conv", kind_number: int | None = None
) -> ConvBn:
    gamma, beta = weights[f"bn{number}.weight"], weights[f"bn{number}.bias"]
    weight = weights[f"{kind}{kind_number or number}.weight"]
    return ConvBn(weight, gamma, beta, jnp.zeros_like(beta), jnp.ones_like(beta))


# --- merged kinds are compositions --------------------------------------------------------------


def cbr_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    return ops.conv_bn_relu(x, unit(w, 1), stride=2, pad=1, train=train)[0]


def cbrp_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    window = {"kernel": 3, "pool_stride": 2, "pool_pad": 1}
    return ops.conv_bn_relu_max_pool(x, unit(w, 1), stride=1, pad=1, train=train, **window)[0]


def bottleneck_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    units = [unit(w, i) for i in (1, 2, 3, 4)]
    return ops.bottleneck(x, units, stride=2, train=train)[0]


def bottleneck_identity_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    return ops.bottleneck(x, [unit(w, i) for i in (1, 2, 3)], train=train)[0]


def basic_block_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    return ops.basic_block(x, [unit(w, i) for i in (1, 2, 3)], stride=2, train=train)[0]


def basic_block_identity_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    return ops.basic_block(x, [unit(w, i) for i in (1, 2)], train=train)[0]


def inverted_residual_by_hand(stride: int) -> Callable[[Arrays, jax.Array, bool], jax.Array]:
    def layer(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
        units = [unit(w, 1), unit(w, 2, "conv_dw", 1), unit(w, 3, "conv", 2)]
        return ops.inverted_residual(x, units, stride=stride, train=train)[0]

    return layer


def inverted_residual_plain_by_hand(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
    units = [unit(w, 1, "conv_dw"), unit(w, 2, "conv", 1)]
    return ops.inverted_residual(x, units, train=train)[0]


MERGED = {
    "cbr": (b.cbr(6, 3, 2, 1), "cbr", cbr_by_hand),
    "cbrp": (b.cbrp(6, 3, 1, 1, 3, 2, 1), "cbrp", cbrp_by_hand),
    "bottleneck": (
        b.block(4, 16, b.RESNET_1_3_1_DS),
        "bottleneck_projection",
        bottleneck_by_hand,
    ),
    "bottleneck identity": (
        b.block(4, 8, b.RESNET_1_3_1),
        "bottleneck_identity",
        bottleneck_identity_by_hand,
    ),
    "basic block": (b.block(12, b.RESNET_3_3_DS), "basic_block_projection", basic_block_by_hand),
    "basic block identity": (
        b.block(8, b.RESNET_3_3),
        "basic_block_identity",
        basic_block_identity_by_hand,
    ),
    "inverted residual": (
        b.mbconv(6, 12, 2),
        "inv_residual_no_shortcut",
        inverted_residual_by_hand(2),
    ),
    "inverted residual identity": (
        b.mbconv(6, 8, 1),
        "inv_residual_identity",
        inverted_residual_by_hand(1),
    ),
    "inverted residual without widening": (
        b.mbconv(1, 8, 1),
        "inv_residual_identity",
        inverted_residual_plain_by_hand,
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_a_merged_kind_equals_its_composition(name: str) -> None:
    layer, kind, by_hand = MERGED[name]
    # A leading 1x1 convolution would hide the block's place as the first layer; pooling does not.
    model = b.seq(layer, b.gap(), b.fc(3))
    fused = ArchPlan.from_blueprint(model, (7, 6, 8), amp=True)
    plain = ArchPlan.from_blueprint(model, (7, 6, 8), amp=False)
    assert kind in [each.kind for each in fused.layers]
    assert kind not in [each.kind for each in plain.layers]
    w, x = weights_of(plain), images(2, 7, 6, 8)

    def composed(w: Arrays, x: jax.Array, train: bool) -> jax.Array:
        return ops.gap_fc(by_hand(w, x, train), w["fc1.weight"], w["fc1.bias"]).reshape(2, 3)

    dy = jnp.asarray(golden_normal("dy", (2, 3)), jnp.float32)
    start = initial_statistics(plain)

    def results(forward: Callable[[Arrays], jax.Array]) -> Arrays:
        y, backward = jax.vjp(forward, w)
        return {"y": y, **backward(dy)[0]}

    # Fused or not, the reference runs the same primitives.
    assert [each.name for each in fused.primitives()] == [each.name for each in plain.primitives()]
    ours = jax.jit(
        lambda w: results(lambda w: forward_train(fused, w, start, x, seed=0, step=0)[0])
    )
    expected = jax.jit(lambda w: results(lambda w: composed(w, x, True)))
    assert_within(ours(w), expected(w), 1e-5, name)
    at_inference = jax.jit(lambda w: composed(w, x, False))
    assert_within(infer(plain, x, w, start), at_inference(w), 1e-6, name)


# --- the residual stack -------------------------------------------------------------------------


def linear(channels: int) -> b.Layer:
    return b.conv(channels, 1)


def test_a_residual_add_runs_both_paths_from_the_same_input() -> None:
    model = b.seq(b.add2(linear(4), b.seq(linear(5), linear(4))), b.gap(), b.fc(2, bias=False))
    plan = ArchPlan.from_blueprint(model, (3, 3, 4))
    w, x = weights_of(plan), images(2, 3, 3, 4)
    matrix = {name: value.reshape(value.shape[0], -1) for name, value in w.items()}
    mean = x.mean((1, 2))
    shortcut = mean @ matrix["conv1.weight"].T
    main = mean @ matrix["conv2.weight"].T @ matrix["conv3.weight"].T
    expected = (shortcut + main) @ matrix["fc1.weight"].T
    assert_within(train(plan, x)[0], expected, 1e-5)


def test_residual_adds_nest_in_either_path() -> None:
    inner = b.add2(b.identity(), linear(4))
    model = b.seq(b.add2(inner, b.seq(inner, linear(4))), b.gap())
    plan = ArchPlan.from_blueprint(model, (2, 2, 4))
    w, x = weights_of(plan), images(3, 2, 2, 4)
    eye = np.eye(4)
    m1, m2, m3 = (np.asarray(w[f"conv{i}.weight"]).reshape(4, 4).T for i in (1, 2, 3))
    expected = np.asarray(x).mean((1, 2)) @ ((eye + m1) + (eye + m2) @ m3)
    assert_within(train(plan, x)[0], expected, 1e-5)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["add2_end"], "'m0', expected an add2_shortcut_end before it"),
        (["add2_shortcut_end"], "'m0', expected an add2_start before it"),
        (["add2_start", "add2_end"], "'m1', expected an add2_shortcut_end"),
        (["add2_start", "add2_shortcut_end", "add2_shortcut_end"], "'m2', expected an add2_start"),
        (["add2_start", "add2_shortcut_end"], "open residual adds at the end is 1"),
    ],
)
def test_unbalanced_markers_are_an_error(kinds: list[str], message: str) -> None:
    shape = Shape(1, 1, 1, 1)
    layers = [ArchLayer(kind, Empty(), f"m{i}", shape, shape) for i, kind in enumerate(kinds)]
    with pytest.raises(PlanError, match=message):
        run_layers(layers, jnp.zeros((1, 1, 1, 1)), lambda index, layer, x: x)


# --- statistics and dropout ---------------------------------------------------------------------


MODEL = b.seq(
    b.cbr(8, 3, 1, 1), b.flatten(), b.dropout(0.5), b.fc(6), b.bn(), b.tanh_act(), b.fc(4)
)


def test_running_statistics_come_back_by_name() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    _, statistics = train(plan, images(4, 5, 5, 3))
    assert sorted(statistics) == ["bn1.mean", "bn1.var", "bn2.mean", "bn2.var"]
    start = initial_statistics(plan)
    assert all((statistics[name] != start[name]).any() for name in start)
    chex.assert_trees_all_equal_shapes_and_dtypes(statistics, start)


def test_training_needs_no_statistics_inference_does() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    w, x = weights_of(plan), images(4, 5, 5, 3)
    bare = jax.jit(lambda w, x: forward_train(plan, w, {}, x, seed=1, step=0))(w, x)
    chex.assert_trees_all_close(bare, train(plan, x), rtol=1e-5)
    with pytest.raises(ValueError, match=r"missing statistic is 'bn1.mean'.*\(8,\)"):
        forward_infer(plan, w, {}, x)


def test_dropout_draws_a_new_mask_every_step_and_none_at_inference() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    x, w = images(4, 5, 5, 3), weights_of(plan)
    first, again, later = (train(plan, x, step)[0] for step in (3, 3, 4))
    chex.assert_trees_all_equal(first, again)
    assert (first != later).any()
    statistics = initial_statistics(plan)
    chex.assert_trees_all_equal(infer(plan, x, w, statistics), infer(plan, x, w, statistics))


def test_two_dropouts_draw_different_masks() -> None:
    model = b.seq(b.flatten(), b.dropout(0.5), b.dropout(0.5))
    plan = ArchPlan.from_blueprint(model, (1, 1, 64))
    logits, _ = train(plan, jnp.ones((8, 1, 1, 64)))
    # Equal masks would keep one half, different ones a quarter.
    assert 0.15 < (logits > 0).mean() < 0.35


def test_the_mask_depends_on_the_place_among_all_primitives() -> None:
    # Fused lowerings draw their masks from the same number.
    plan = ArchPlan.from_blueprint(b.seq(b.flatten(), b.relu(), b.dropout(0.5)), (1, 1, 33))
    logits, _ = train(plan, jnp.ones((2, 1, 1, 33)), step=6)
    index = [layer.kind for layer in plan.primitives()].index("dropout")
    chex.assert_trees_all_equal(
        logits, ops.dropout(jnp.ones((2, 33)), 0.5, seed=1, step=6, layer=index)
    )


def test_folded_norms_may_stand_in_for_running_statistics() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    x, w = images(4, 5, 5, 3), weights_of(plan)
    _, statistics = train(plan, x)
    folded: Arrays = {}
    for name in ("bn1", "bn2"):
        tensors = (w[f"{name}.weight"], w[f"{name}.bias"])
        running = (statistics[f"{name}.mean"], statistics[f"{name}.var"])
        scale, shift = ops.fold_batch_norm(*tensors, *running)
        folded |= {f"{name}.eq_scale": scale, f"{name}.eq_bias": shift}
    assert_within(infer(plan, x, w, folded), infer(plan, x, w, statistics), 1e-6)


# --- precision, stored channels, resolutions ----------------------------------------------------


def test_half_precision_keeps_masters_and_statistics_in_single() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3), amp=True)
    w, x = weights_of(plan), images(4, 5, 5, 3)

    def loss(w: Arrays, x: jax.Array) -> Any:
        logits, statistics = forward_train(plan, w, {}, x, seed=1, step=0)
        return logits.astype(jnp.float32).sum(), (logits, statistics)

    run = jax.jit(jax.grad(loss, has_aux=True))
    half, (logits, statistics) = run(w, x.astype(jnp.float16))
    single, (exact, exact_statistics) = run(w, x)
    assert logits.dtype == jnp.float16
    assert {v.dtype for v in (*half.values(), *statistics.values())} == {jnp.dtype("float32")}
    assert_within(logits, exact, 5e-3)
    assert_within(statistics, exact_statistics, 5e-3)
    large = {name: value for name, value in single.items() if jnp.linalg.norm(value) > 1e-3}
    assert_within({name: half[name] for name in large}, large, 2e-2)


def test_images_may_carry_the_padded_channels() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3), amp=True)
    assert plan.stored_channels == 4
    w, x = weights_of(plan), images(2, 5, 5, 3).astype(jnp.float16)
    padded = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)))

    def gradient(x: jax.Array) -> Any:
        def loss(w: Arrays) -> jax.Array:
            return (forward_train(plan, w, {}, x, seed=1, step=0)[0] ** 2).sum()

        return jax.jit(jax.value_and_grad(loss))(w)

    (_, ours), (_, expected) = gradient(padded), gradient(x)
    assert_within(ours, expected, 1e-3)
    assert ours["conv1.weight"].shape == (8, 3, 3, 3)


def test_one_plan_serves_other_resolutions_where_the_network_allows_it() -> None:
    model = b.seq(b.cbr(8, 3, 2, 1), b.maxpool(2, 2, 0), b.gap(), b.fc(3))
    plan = ArchPlan.from_blueprint(model, (16, 16, 3))
    logits, _ = train(plan, images(2, 23, 18, 3))
    assert logits.shape == (2, 3)


# --- errors -------------------------------------------------------------------------------------


def trace(plan: ArchPlan, weights: Arrays, x: jax.Array) -> Any:
    return jax.eval_shape(lambda w, x: forward_train(plan, w, {}, x, seed=0, step=0), weights, x)


def test_errors_name_the_layer_while_tracing() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    w, x = weights_of(plan), images(2, 5, 5, 3)
    with pytest.raises(ShapeError, match=r"layer fc1: shape of weight is \(6, 200\).* in = 288"):
        trace(plan, w, images(2, 6, 6, 3))
    with pytest.raises(TypeError, match="layer conv1: dtype of weight is 'float16'"):
        trace(plan, w | {"conv1.weight": w["conv1.weight"].astype(jnp.float16)}, x)
    with pytest.raises(ValueError, match=r"missing weight is 'fc2.bias', .* \(4,\)"):
        trace(plan, {name: v for name, v in w.items() if name != "fc2.bias"}, x)
    with pytest.raises(ShapeError, match=r"channels of images \(2, 5, 5, 1\) is 1, expected 3"):
        trace(plan, w, images(2, 5, 5, 1))
    with pytest.raises(ShapeError, match="shape of images"):
        trace(plan, w, x[0])


def test_a_kind_without_a_lowering_is_named() -> None:
    plan = ArchPlan.from_blueprint(MODEL, (5, 5, 3))
    layers = (replace(plan.layers[0], kind="attention"), *plan.layers[1:])
    with pytest.raises(ValueError, match="kind of layer is 'attention'"):
        run_layers(
            layers,
            images(2, 5, 5, 3),
            lambda index, layer, x: lowering_of(layer.kind).infer(layer, {}, x),
        )
