"""One descriptor per kind: shape rule, tensors, operations."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance.core.errors import ShapeError
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph import params as p
from renaissance.graph.layer import ArchLayer, StatisticSpec, WeightSpec
from renaissance.graph.registry import descriptor_of, registered_kinds

from .random_trees import after_window, unhurried

PRIMITIVES = set(
    "conv conv_dw group_conv bn1d bn2d relu relu6 leaky_relu silu hardswish elu sigmoid tanh "
    "dropout maxpool avgpool gap fc flatten identity channel_padding add2_start "
    "add2_shortcut_end add2_end softmax_cross_entropy".split()
)
MERGED = set(
    "cbr cbrp gap_fc bottleneck_projection bottleneck_identity basic_block_projection "
    "basic_block_identity inv_residual_no_shortcut inv_residual_identity".split()
)
WRITTEN = {"bn", "block", "mbconv"}  # stand in blueprints only

MAP = Shape(2, 9, 7, 12)


def shape(kind: str, params, input_shape: Shape = MAP) -> Shape:
    return descriptor_of(kind).infer_shape(params, input_shape)


def arch_layer(kind: str, params, input_shape: Shape = MAP, first: bool = False) -> ArchLayer:
    return ArchLayer(kind, params, "it", input_shape, shape(kind, params, input_shape), first)


def test_every_kind_of_the_contract_is_described():
    assert set(registered_kinds()) >= PRIMITIVES | MERGED | WRITTEN
    assert all(descriptor_of(kind).kind == kind for kind in PRIMITIVES | MERGED | WRITTEN)


@pytest.mark.parametrize(
    "kind, params, expected",
    [
        ("conv", p.Conv(5, 3, 2, 1), (2, 5, 4, 5)),
        ("conv", p.Conv(5, 7), (2, 3, 1, 5)),
        ("conv_dw", p.ConvDw(3, 1, 1), (2, 9, 7, 12)),
        ("group_conv", p.GroupConv(8, 4, 3, 1, 0), (2, 7, 5, 8)),
        ("bn2d", p.BatchNorm(), MAP),
        ("relu", p.Activation(), MAP),
        ("dropout", p.Dropout(0.5), MAP),
        ("maxpool", p.Pool(3, 2, 1), (2, 5, 4, 12)),
        ("avgpool", p.Pool(2, 2, 0), (2, 4, 3, 12)),
        ("gap", p.Gap(), (2, 1, 1, 12)),
        ("fc", p.Fc(10), (2, 1, 1, 10)),
        ("flatten", p.Flatten(1), (2, 1, 1, 756)),
        ("flatten", p.Flatten(2), (2, 9, 1, 84)),
        ("flatten", p.Flatten(3), MAP),
        ("identity", p.Empty(), MAP),
        ("channel_padding", p.Empty(), (2, 9, 7, 16)),
        ("add2_start", p.Empty(), MAP),
        ("cbr", p.ConvBnRelu(5, 3, 2, 1), (2, 5, 4, 5)),
        ("cbrp", p.ConvBnReluPool(5, 3, 1, 1, 3, 2, 1), (2, 5, 4, 5)),
        ("gap_fc", p.GapFc(10, True), (2, 1, 1, 10)),
        ("block", p.Block(4, 8, p.BlockStyle.RESNET_1_3_1_DS), (2, 5, 4, 8)),
        ("block", p.Block(None, 8, p.BlockStyle.RESNET_3_3), (2, 9, 7, 8)),
        ("mbconv", p.MbConv(6, 8, 2), (2, 5, 4, 8)),
        ("bottleneck_projection", p.Bottleneck(4, 8, 2), (2, 5, 4, 8)),
        ("basic_block_identity", p.BasicBlock(12, 1), MAP),
        ("inv_residual_identity", p.InvertedResidual(6, 12, 1), MAP),
    ],
)
def test_output_shape(kind, params, expected):
    assert shape(kind, params) == expected


@unhurried
@given(*[st.integers(1, 20)] * 3, st.integers(1, 6), st.integers(0, 4))
def test_a_window_counts_its_positions(height, width, kernel, stride, pad):
    counted = [after_window(extent, kernel, stride, pad) for extent in (height, width)]
    params, before = p.Conv(3, kernel, stride, pad), Shape(1, height, width, 2)
    if min(counted) < 1:
        with pytest.raises(ShapeError, match=f"the window is {kernel}, expected at most the padd"):
            shape("conv", params, before)
    else:
        assert shape("conv", params, before) == (1, *counted, 3)


@pytest.mark.parametrize("channels, padded", [(1, 8), (7, 8), (8, 8), (9, 16), (64, 64)])
def test_channel_padding_fills_up_to_a_multiple_of_eight(channels, padded):
    assert shape("channel_padding", p.Empty(), Shape(1, 2, 2, channels)).c == padded


@pytest.mark.parametrize(
    "kind, params, input_shape, message",
    [
        (
            "conv",
            p.Conv(3, 10, 1, 0),
            MAP,
            "the output height would be 0: the window is 10, expected at most the padded height: "
            "9 + 2 * 0 = 9",
        ),
        (
            "maxpool",
            p.Pool(8, 1, 0),
            MAP,
            "the output width would be 0: the window is 8, expected at most the padded width: "
            "7 + 2 * 0 = 7",
        ),
        (
            "group_conv",
            p.GroupConv(10, 5, 1),
            MAP,
            "the number of input channels is 12, expected a multiple of groups=5",
        ),
        ("bn1d", p.BatchNorm(), MAP, "the input of bn1d is '2x9x7x12', expected a vector"),
        (
            "softmax_cross_entropy",
            p.Head(12),
            MAP,
            "the network's output is '2x9x7x12', expected one vector of 12 class scores",
        ),
        (
            "softmax_cross_entropy",
            p.Head(10),
            Shape(2, 1, 1, 12),
            "the number of class scores is 12, expected num_classes=10",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_named_with_the_rule(kind, params, input_shape, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        shape(kind, params, input_shape)


@pytest.mark.parametrize(
    "kind, params, expected",
    [
        ("conv", p.Conv(5, 3), (5, 3, 3, 12)),
        ("conv_dw", p.ConvDw(3), (12, 3, 3, 1)),
        ("group_conv", p.GroupConv(8, 4, 3), (8, 3, 3, 3)),
    ],
)
@pytest.mark.parametrize(
    "first, group", [(True, WeightGroup.FIRST_CONV), (False, WeightGroup.DEEP_CONV)]
)
def test_filters_are_krsc(kind, params, expected, first, group):
    weights = descriptor_of(kind).weights(arch_layer(kind, params, first=first))
    assert weights == (WeightSpec("weight", expected, group),)


def test_fully_connected_weights():
    weight = WeightSpec("weight", (10, 756), WeightGroup.FC_WEIGHT)
    bias = WeightSpec("bias", (10,), WeightGroup.FC_BIAS)
    rule = descriptor_of("fc").weights
    assert rule(arch_layer("fc", p.Fc(10))) == (weight, bias)
    assert rule(arch_layer("fc", p.Fc(10, False), first=True)) == (weight,)


@pytest.mark.parametrize("kind, at", [("bn1d", Shape(2, 1, 1, 12)), ("bn2d", MAP)])
def test_batch_norm_tensors(kind, at):
    layer = arch_layer(kind, p.BatchNorm(), at)
    assert descriptor_of(kind).weights(layer) == (
        WeightSpec("weight", (12,), WeightGroup.BN_WEIGHT),
        WeightSpec("bias", (12,), WeightGroup.BN_BIAS),
    )
    assert descriptor_of(kind).statistics(layer) == (
        StatisticSpec("mean", (12,)),
        StatisticSpec("var", (12,)),
    )


def test_only_weighted_layers_have_tensors_and_operations():
    weighted = {"conv", "conv_dw", "group_conv", "fc", "bn1d", "bn2d"}
    plain = {
        "dropout": p.Dropout(0.5),
        "maxpool": p.Pool(2, 2, 0),
        "avgpool": p.Pool(2, 2, 0),
        "gap": p.Gap(),
        "flatten": p.Flatten(),
        "softmax_cross_entropy": p.Head(12),
    }
    for kind in PRIMITIVES - weighted:
        record = plain.get(kind) or descriptor_of(kind).params()
        layer = arch_layer(kind, record, Shape(1, 1, 1, 12) if kind[0] == "s" else MAP)
        assert descriptor_of(kind).weights(layer) == ()
        assert descriptor_of(kind).statistics(layer) == ()
        assert descriptor_of(kind).flops(layer) == 0


@pytest.mark.parametrize(
    "kind, params, expected",
    [
        ("conv", p.Conv(5, 3, 1, 1), 2 * 63 * 5 * 9 * 12),
        ("conv_dw", p.ConvDw(3, 1, 1), 2 * 63 * 12 * 9),
        ("group_conv", p.GroupConv(8, 4, 3, 1, 1), 2 * 63 * 8 * 9 * 3),
        ("fc", p.Fc(10), 2 * 756 * 10),
    ],
)
def test_operations_of_one_sample(kind, params, expected):
    layer = arch_layer(kind, params, MAP.with_batch(1))
    assert descriptor_of(kind).flops(layer) == expected


def test_an_unknown_kind_is_told_the_known_ones():
    with pytest.raises(ValueError, match="layer kind is 'warp', expected one of add2_end, add2_s"):
        descriptor_of("warp")
