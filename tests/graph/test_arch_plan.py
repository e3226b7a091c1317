"""ArchPlan as a whole: what it is made from, what it tells, what it refuses."""

from __future__ import annotations

import pickle
import re
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance.core.errors import ShapeError
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import (
    RESNET_3_3,
    BluePrint,
    Layer,
    add2,
    block,
    bn,
    cbr,
    cbrp,
    conv,
    conv_dw,
    dropout,
    fc,
    gap,
    gap_fc,
    group_conv,
    identity,
    layer,
    maxpool,
    relu,
    repeat,
    seq,
)
from renaissance.graph.params import Head

from .random_trees import networks, unhurried

TINY = seq(cbr(8, 3, 1, 1), block(8, RESNET_3_3), gap_fc(10, True))


def plan(tree: Layer = TINY, size: tuple[int, ...] = (8, 8, 3), **options) -> ArchPlan:
    return ArchPlan.from_blueprint(tree, size, **options)


# --- input and options -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 6, 3), [8, 6, 3], (32, 8, 6, 3), Shape(32, 8, 6, 3)])
def test_the_input_is_one_sample_whatever_the_batch(size):
    assert plan(size=size).input_shape == Shape(1, 8, 6, 3)


@pytest.mark.parametrize(
    "size, kind, message",
    [
        ((8, 8), ValueError, "input is (8, 8), expected (H, W, C) of one sample or a Shape(N, H"),
        (8, ValueError, "input is 8, expected (H, W, C)"),
        ((0, 8, 3), ValueError, "input height is 0, expected an integer >= 1"),
        ((8, 8.0, 3), TypeError, "input width is 8.0, expected an integer >= 1"),
        ((8, 8, -3), ValueError, "input channels is -3, expected an integer >= 1"),
    ],
)
def test_an_input_that_is_no_map_is_an_error(size, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        plan(size=size)


def test_fusion_follows_amp():
    assert [plan(amp=amp).fused for amp in (True, False)] == [True, False]
    assert not plan(amp=True, fuse=False).fused
    assert plan(amp=True, fuse=True) == plan(amp=True)
    assert plan(fuse=False) == plan()


def test_fusion_without_amp_is_an_error_that_says_so():
    message = "fuse is True, expected False or None without AMP: the fused convolution kernels are"
    with pytest.raises(ValueError, match=message):
        plan(fuse=True)


def test_a_bare_layer_is_a_model_without_a_name():
    assert plan(TINY).name is None
    assert plan(BluePrint(TINY, "tiny")).name == "tiny"
    with pytest.raises(TypeError, match="BluePrint layer is 'resnet50', expected a Layer"):
        plan("resnet50")


def test_a_plan_is_an_immutable_value():
    one = plan()
    assert one == plan() != plan(size=(9, 9, 3))
    assert hash(one) == hash(plan())
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(FrozenInstanceError):
        one.amp = True


# --- the head ----------------------------------------------------------------------------------


def test_the_number_of_classes_is_the_width_of_the_output():
    assert plan().num_classes == 10
    assert plan().layers[-1].params == Head(10)
    assert plan(num_classes=10) == plan()


def test_a_network_of_convolutions_may_end_with_a_global_pool():
    assert plan(seq(cbr(7, 3, 1, 1), gap())).num_classes == 7


def test_a_blueprint_may_bring_its_own_head():
    own = seq(TINY, layer("softmax_cross_entropy", Head(10)))
    assert [x.kind for x in plan(own).layers] == [x.kind for x in plan().layers]
    with pytest.raises(ValueError, match="num_classes is 11, expected 10, as the blueprint's own"):
        plan(own, num_classes=11)


def test_a_number_of_classes_the_network_does_not_give_is_an_error():
    message = "the number of class scores is 10, expected num_classes=1000"
    with pytest.raises(ShapeError, match=message):
        plan(num_classes=1000)
    with pytest.raises(ValueError, match="num_classes is 0, expected an integer >= 1"):
        plan(num_classes=0)


def test_a_network_that_ends_with_a_map_is_an_error():
    message = "the network's output is '1x8x8x8', expected one vector of 8 class scores; end with"
    with pytest.raises(ShapeError, match=message):
        plan(cbr(8, 3, 1, 1))


# --- tensors -------------------------------------------------------------------------------------


def test_weights_are_named_shaped_and_grouped_in_order():
    tree = seq(
        *(conv(8, 5, 1, 2), bn(), conv_dw(3), group_conv(6, 2, 1)),
        *(fc(4), bn(), fc(2, False)),
    )
    assert [(name, spec.shape, spec.group.name) for name, spec, _ in plan(tree).weights()] == [
        ("conv1.weight", (8, 5, 5, 3), "FIRST_CONV"),
        ("bn1.weight", (8,), "BN_WEIGHT"),
        ("bn1.bias", (8,), "BN_BIAS"),
        ("conv_dw1.weight", (8, 3, 3, 1), "DEEP_CONV"),
        ("group_conv1.weight", (6, 1, 1, 4), "DEEP_CONV"),
        ("fc1.weight", (4, 6 * 6 * 6), "FC_WEIGHT"),
        ("fc1.bias", (4,), "FC_BIAS"),
        ("bn2.weight", (4,), "BN_WEIGHT"),
        ("bn2.bias", (4,), "BN_BIAS"),
        ("fc2.weight", (2, 4), "FC_WEIGHT"),
    ]


def test_statistics_are_named_and_shaped_in_order():
    tree = seq(conv(8, 3), bn(), fc(4), bn())
    assert [(name, spec.shape) for name, spec, _ in plan(tree).statistics()] == [
        ("bn1.mean", (8,)),
        ("bn1.var", (8,)),
        ("bn2.mean", (4,)),
        ("bn2.var", (4,)),
    ]


def test_parameters_are_counted():
    assert plan(seq(conv(8, 3), bn(), gap_fc(4, True))).parameter_count == 216 + 16 + 36
    assert plan(seq(gap(), fc(4, False))).parameter_count == 12


def test_operations_are_counted_as_two_per_multiply_add():
    tree = seq(conv(8, 3), conv_dw(3), group_conv(6, 2, 1), fc(4))
    convs = 36 * 8 * 9 * 3 + 16 * 8 * 9 + 16 * 6 * 4
    assert plan(tree).flops == 2 * (convs + 4 * 16 * 6)


def test_scales_that_end_a_residual_branch_are_known():
    tree = seq(
        block(8, RESNET_3_3),  # projects: bn1 on the shortcut, bn2 and bn3 on the main path
        repeat(block(8, RESNET_3_3), 2),
        add2(identity(), relu()),
        gap_fc(10, True),
    )
    for amp in (True, False):
        names = plan(tree, amp=amp).residual_gammas()
        assert names == ("bn3.weight", "bn5.weight", "bn7.weight")


# --- padding of the first convolution's channels -------------------------------------------------


@pytest.mark.parametrize("channels, stored", [(1, 4), (3, 4), (4, 4), (5, 8), (16, 16)])
@pytest.mark.parametrize("front", [conv(8, 3), cbrp(8, 3, 1, 1, 2, 2, 0), cbr(8, 3, 1, 1)])
def test_under_amp_the_first_convolution_reads_padded_channels(front, channels, stored):
    padded = plan(seq(front, TINY), (8, 8, channels), amp=True)
    assert padded.stored_channels == stored
    assert padded.stored_input_shape == Shape(1, 8, 8, stored)
    assert padded.input_shape == padded.layers[0].in_shape == Shape(1, 8, 8, channels)


def test_logical_weights_keep_the_real_channels():
    padded, plain = plan(amp=True), plan()
    assert padded.weights()[0][1].shape == (8, 3, 3, 3)
    assert padded.parameter_count == plain.parameter_count
    assert padded.flops == plain.flops


@pytest.mark.parametrize("fuse", [True, False])
def test_only_the_first_convolution_is_stored_padded(fuse):
    padded = plan(amp=True, fuse=fuse)
    stored = {name: padded.stored_weight_shape(x, spec) for name, spec, x in padded.weights()}
    assert stored.pop("conv1.weight") == (8, 3, 3, 4)
    assert stored == {name: spec.shape for name, spec, _ in padded.weights()[1:]}


@pytest.mark.parametrize(
    "tree",
    [
        fc(10),
        seq(maxpool(2, 2, 0), TINY),
        seq(conv_dw(3), TINY),
        seq(group_conv(3, 3, 1), TINY),
        seq(dropout(0.1), TINY),
    ],
)
def test_without_a_convolution_at_the_front_nothing_is_padded(tree):
    unpadded = plan(tree, amp=True)
    assert unpadded.stored_channels == 3
    for _, spec, x in unpadded.weights():
        assert unpadded.stored_weight_shape(x, spec) == spec.shape


def test_without_amp_nothing_is_padded():
    assert plan().stored_channels == 3
    assert plan().stored_input_shape == plan().input_shape


# --- the table -----------------------------------------------------------------------------------


def test_the_table_shows_every_layer_and_the_totals():
    assert str(plan(BluePrint(TINY, "tiny"), amp=True)).splitlines() == [
        "tiny: input 8x8x3 (in memory 8x8x4), 10 classes, fp16 AMP, fused",
        "",
        "layer                   kind                   input  output  parameters    FLOPs",
        "---------------------------------------------------------------------------------",
        "cbr1                    cbr                    8x8x3   8x8x8         232   27,648",
        "basic_block_identity1   basic_block_identity   8x8x8   8x8x8       1,184  147,456",
        "gap_fc1                 gap_fc                 8x8x8      10          90      160",
        "softmax_cross_entropy1  softmax_cross_entropy     10      10",
        "---------------------------------------------------------------------------------",
        "total                                                              1,506  175,264",
    ]


def test_the_unfused_table_indents_the_paths_of_an_add():
    lines = str(plan(seq(block(3, RESNET_3_3), gap_fc(10, True)))).splitlines()
    assert lines[0] == "model: input 8x8x3, 10 classes, fp32, unfused"
    assert [line[: len(line) - len(line.lstrip())] + line.split()[0] for line in lines[4:13]] == [
        *("add2_start1", "add2_shortcut_end1"),
        *("  conv1", "  bn1", "  relu1", "  conv2", "  bn2"),
        *("add2_end1", "relu2"),
    ]


# --- any network ---------------------------------------------------------------------------------


@unhurried
@given(networks(), st.booleans())
def test_shapes_flow_without_a_gap(network, amp):
    tree, size = network
    plan_ = plan(tree, size, amp=amp)
    inputs = []
    at = plan_.input_shape
    for x in plan_.primitives():
        assert x.in_shape == at
        at = x.out_shape
        if x.kind == "add2_start":
            inputs.append(at)
        elif x.kind == "add2_shortcut_end":
            assert at == inputs[-1]
        elif x.kind == "add2_end":
            inputs.pop()
    assert not inputs
    assert at == Shape(1, 1, 1, plan_.num_classes)
    for x in plan_.layers:
        assert x.in_shape == next(x.primitives()).in_shape


@unhurried
@given(networks(), st.booleans())
def test_names_are_unique_and_one_layer_is_first(network, amp):
    tree, size = network
    plan_ = plan(tree, size, amp=amp)
    for layers in (plan_.layers, plan_.primitives()):
        assert len({x.name for x in layers}) == len(layers)
        assert sum(x.is_first_layer for x in layers) == 1
    assert len({name for name, _, _ in plan_.weights()}) == len(plan_.weights())
    first = next(x for x in plan_.primitives() if x.is_first_layer)
    assert plan_.weights()[0][2] == first
    groups = {spec.group for _, spec, x in plan_.weights() if x != first}
    assert WeightGroup.FIRST_CONV not in groups


BREAKS = {
    "a window larger than the map": conv(4, 40),
    "a pool larger than the map": maxpool(40, 1, 0),
    "groups that do not divide": seq(conv(4, 1), group_conv(6, 3, 1)),
    "paths of different width": seq(conv(4, 1), add2(identity(), conv(5, 1))),
    "paths of different size": seq(conv(4, 1), add2(conv(4, 3, 1, 0), conv(4, 3, 1, 1))),
}


@unhurried
@given(networks(), st.sampled_from(sorted(BREAKS)), st.booleans())
def test_one_impossible_layer_anywhere_is_found_and_named(network, which, amp):
    tree, size = network
    broken = seq(cbr(4, 3, 1, 1), BREAKS[which], tree)
    with pytest.raises(ShapeError, match=r"^(conv|maxpool|group_conv|add2_end)[12]: "):
        plan(broken, size, amp=amp)


def test_a_plan_of_another_name_is_another_plan():
    assert replace(plan(), name="other") != plan()
