"""Steps 7 to 10: what is merged, what is left alone, and that a block is one whoever wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given

from renaissance.graph import params as p
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import (
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
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
    flatten,
    gap,
    gap_fc,
    identity,
    leaky_relu,
    maxpool,
    mbconv,
    relu,
    relu6,
    repeat,
    seq,
)

from .random_trees import networks, unhurried

INPUT = (8, 8, 16)


def plan(tree: Layer, fuse: bool = True) -> ArchPlan:
    return ArchPlan.from_blueprint(tree, INPUT, fuse=fuse, amp=True)


def kinds(tree: Layer, fuse: bool = True) -> list[str]:
    """Kinds of a network's layers; the pooling, fc and head that finish it are left away."""
    *layers, end, head = plan(seq(tree, gap_fc(3, True)), fuse).layers
    assert (end.kind if fuse else layers.pop().kind) in ("gap_fc", "gap")
    assert head.kind == "softmax_cross_entropy"
    return [layer.kind for layer in layers]


def written_out_bottleneck(mid: int, out: int, stride: int, shortcut: Layer) -> Layer:
    return seq(
        add2(
            shortcut,
            seq(
                *(conv(mid, 1), bn(), relu()),
                *(conv(mid, 3, stride, 1), bn(), relu()),
                *(conv(out, 1), bn()),
            ),
        ),
        relu(),
    )


def written_out_basic_block(out: int, stride: int, shortcut: Layer) -> Layer:
    main = seq(conv(out, 3, stride, 1), bn(), relu(), conv(out, 3, 1, 1), bn())
    return seq(add2(shortcut, main), relu())


def written_out_inverted_residual(hidden: int, out: int, stride: int) -> Layer:
    return seq(
        *(conv(hidden, 1), bn(), relu6()),
        *(conv_dw(3, stride, 1), bn(), relu6()),
        *(conv(out, 1), bn()),
    )


def projection(out: int, stride: int) -> Layer:
    return seq(conv(out, 1, stride), bn())


# a block of the model language, the same block by hand, what both become
BLOCKS = [
    (
        block(4, 16, RESNET_1_3_1),
        written_out_bottleneck(4, 16, 1, identity()),
        ("bottleneck_identity", p.Bottleneck(4, 16, 1)),
    ),
    (
        block(4, 32, RESNET_1_3_1),
        written_out_bottleneck(4, 32, 1, projection(32, 1)),
        ("bottleneck_projection", p.Bottleneck(4, 32, 1)),
    ),
    (
        block(4, 32, RESNET_1_3_1_DS),
        written_out_bottleneck(4, 32, 2, projection(32, 2)),
        ("bottleneck_projection", p.Bottleneck(4, 32, 2)),
    ),
    (
        block(16, RESNET_3_3),
        written_out_basic_block(16, 1, identity()),
        ("basic_block_identity", p.BasicBlock(16, 1)),
    ),
    (
        block(32, RESNET_3_3),
        written_out_basic_block(32, 1, projection(32, 1)),
        ("basic_block_projection", p.BasicBlock(32, 1)),
    ),
    (
        block(32, RESNET_3_3_DS),
        written_out_basic_block(32, 2, projection(32, 2)),
        ("basic_block_projection", p.BasicBlock(32, 2)),
    ),
    (
        mbconv(6, 16, 1),
        add2(identity(), written_out_inverted_residual(96, 16, 1)),
        ("inv_residual_identity", p.InvertedResidual(6, 16, 1)),
    ),
    (
        mbconv(6, 8, 1),
        written_out_inverted_residual(96, 8, 1),
        ("inv_residual_no_shortcut", p.InvertedResidual(6, 8, 1)),
    ),
    (
        mbconv(6, 16, 2),
        written_out_inverted_residual(96, 16, 2),
        ("inv_residual_no_shortcut", p.InvertedResidual(6, 16, 2)),
    ),
    (
        mbconv(1, 16, 1),
        add2(identity(), seq(conv_dw(3, 1, 1), bn(), relu6(), conv(16, 1), bn())),
        ("inv_residual_identity", p.InvertedResidual(1, 16, 1)),
    ),
    (
        mbconv(1, 8, 2),
        seq(conv_dw(3, 2, 1), bn(), relu6(), conv(8, 1), bn()),
        ("inv_residual_no_shortcut", p.InvertedResidual(1, 8, 2)),
    ),
]
IDS = [f"{kind}-{record}" for _, _, (kind, record) in BLOCKS]


@pytest.mark.parametrize("named, by_hand, expected", BLOCKS, ids=IDS)
@pytest.mark.parametrize("written", ["named", "by hand"])
def test_a_block_is_merged_whoever_wrote_it(named, by_hand, expected, written):
    tree = named if written == "named" else by_hand
    layer, *rest = plan(seq(tree, gap_fc(3, True))).layers
    assert (layer.kind, layer.params) == expected
    assert layer.name == f"{layer.kind}1"
    assert [x.kind for x in rest] == ["gap_fc", "softmax_cross_entropy"]


@pytest.mark.parametrize("named, by_hand, expected", BLOCKS, ids=IDS)
@pytest.mark.parametrize("fuse", [True, False])
def test_named_and_written_out_blocks_describe_the_same_tensors(named, by_hand, expected, fuse):
    one, other = (plan(seq(tree, gap_fc(3, True)), fuse) for tree in (named, by_hand))
    assert [w[:2] for w in one.weights()] == [w[:2] for w in other.weights()]
    assert [s[:2] for s in one.statistics()] == [s[:2] for s in other.statistics()]
    assert [(x.kind, x.name, x.params) for x in one.layers] == [
        (x.kind, x.name, x.params) for x in other.layers
    ]


@pytest.mark.parametrize("named, by_hand, expected", BLOCKS, ids=IDS)
def test_unfused_a_block_stays_primitive(named, by_hand, expected):
    unfused = plan(seq(named, gap_fc(3, True)), fuse=False)
    assert not any(layer.parts for layer in unfused.layers)
    assert unfused.layers[:-3] == plan(seq(named, gap_fc(3, True))).layers[0].parts


# Written almost like a block: merging it would change what is computed, or no kernel fits.
UNLIKE = {
    "the stride on the first 1x1": seq(
        add2(
            projection(32, 2),
            seq(cbr(4, 1, 2, 0), cbr(4, 3, 1, 1), conv(32, 1), bn()),
        ),
        relu(),
    ),
    "a shortcut of another width inside": written_out_bottleneck(4, 16, 1, relu()),
    "no ReLU at the end": add2(identity(), seq(cbr(16, 3, 1, 1), conv(16, 3, 1, 1), bn())),
    "ReLU6 inside": seq(
        add2(identity(), seq(conv(16, 3, 1, 1), bn(), relu6(), conv(16, 3, 1, 1), bn())), relu()
    ),
    "basic block with an inner width of its own": seq(
        add2(identity(), seq(cbr(4, 3, 1, 1), conv(16, 3, 1, 1), bn())), relu()
    ),
    "bottleneck of two inner widths": seq(
        add2(identity(), seq(cbr(4, 1, 1, 0), cbr(6, 3, 1, 1), conv(16, 1), bn())), relu()
    ),
    "the paths exchanged": seq(
        add2(seq(cbr(16, 3, 1, 1), conv(16, 3, 1, 1), bn()), identity()), relu()
    ),
    "a 3x3 without padding": seq(
        add2(seq(conv(16, 5), bn()), seq(cbr(16, 3, 1, 0), conv(16, 3, 1, 0), bn())), relu()
    ),
    "an activation after the linear bottleneck": seq(
        written_out_inverted_residual(96, 8, 1), relu6()
    ),
    "an expansion that is no whole number": written_out_inverted_residual(40, 8, 1),
    "a widening that does not widen": written_out_inverted_residual(16, 8, 1),
}


@pytest.mark.parametrize("tree", UNLIKE.values(), ids=UNLIKE.keys())
def test_what_only_looks_like_a_block_is_not_merged_into_one(tree):
    blocks = ("bottleneck", "basic_block", "inv_residual")
    # An inner run may still be one: depthwise with its narrow end is an inverted residual itself.
    whole = [x for x in plan(seq(tree, gap_fc(3, True))).layers if x.kind.startswith(blocks)]
    assert all(part.kind != "add2_start" for x in whole for part in x.parts)
    assert all(sum(part.kind == "conv" for part in x.parts) < 2 for x in whole)


@pytest.mark.parametrize(
    "tree, merged, parts",
    [
        (cbr(8, 3, 1, 1), ["cbr"], "conv1 bn1 relu1"),
        (seq(conv(8, 3, 1, 1), bn(), relu()), ["cbr"], "conv1 bn1 relu1"),
        (cbrp(8, 3, 1, 1, 2, 2, 0), ["cbrp"], "conv1 bn1 relu1 maxpool1"),
        (seq(cbr(8, 3, 1, 1), maxpool(2, 2, 0)), ["cbrp"], "conv1 bn1 relu1 maxpool1"),
    ],
)
def test_units_are_merged_whoever_wrote_them(tree, merged, parts):
    assert kinds(tree) == merged
    unit = plan(seq(tree, gap_fc(3, True))).layers[0]
    assert " ".join(part.name for part in unit.parts) == parts


def test_a_merged_unit_keeps_the_numbers_of_its_parts():
    tree = seq(conv(8, 5, 2, 3), bn(0.3, 1e-3), relu(), maxpool(3, 2, 1), cbr(4, 1, 1, 0, 0.4))
    pooled, unit, *_ = plan(seq(tree, gap())).layers
    assert pooled.params == p.ConvBnReluPool(8, 5, 2, 3, 3, 2, 1, 0.3, 1e-3)
    assert unit.params == p.ConvBnRelu(4, 1, 1, 0, 0.4)
    assert (pooled.in_shape, pooled.out_shape) == ((1, 8, 8, 16), (1, 3, 3, 8))


@pytest.mark.parametrize(
    "tree, merged",
    [
        (seq(conv(8, 1), bn()), ["conv", "bn2d"]),
        (seq(conv(8, 1), relu()), ["conv", "relu"]),
        (seq(conv(8, 1), bn(), leaky_relu()), ["conv", "bn2d", "leaky_relu"]),
        (seq(conv_dw(3), bn(), relu()), ["conv_dw", "bn2d", "relu"]),
        (seq(conv(8, 1), bn(), dropout(0.1), relu()), ["conv", "bn2d", "dropout", "relu"]),
        (seq(cbr(8, 1, 1, 0), cbr(8, 1, 1, 0)), ["cbr", "cbr"]),
        (add2(conv(16, 1), seq(bn(), relu())), None),
    ],
)
def test_only_a_whole_unit_is_merged(tree, merged):
    expected = merged or ["add2_start", "conv", "add2_shortcut_end", "bn2d", "relu", "add2_end"]
    assert kinds(tree) == expected


@pytest.mark.parametrize(
    "tree, merged",
    [
        (seq(gap(), fc(3)), ["gap_fc"]),
        (seq(gap(), flatten(), fc(3)), ["gap_fc"]),
        (seq(gap(), dropout(0.2), fc(3)), ["gap", "dropout", "fc"]),
        (seq(gap(), relu()), ["gap", "relu"]),
    ],
)
def test_a_global_pool_and_its_fc_are_merged(tree, merged):
    assert [layer.kind for layer in plan(tree).layers[:-1]] == merged


def test_bias_of_a_merged_fc_is_kept():
    for bias in (True, False):
        layer = plan(seq(gap(), fc(3, bias))).layers[0]
        assert layer.params == p.GapFc(3, bias)


def test_merged_layers_are_numbered_by_kind():
    tree = seq(cbrp(4, 3, 1, 1, 2, 2, 0), repeat(cbr(4, 1, 1, 0), 2), cbrp(4, 1, 1, 0, 1, 1, 0))
    names = [layer.name for layer in plan(seq(tree, gap())).layers]
    assert names[:-2] == ["cbrp1", "cbr1", "cbr2", "cbrp2"]


def test_the_first_layer_is_marked_inside_a_merged_one():
    first, second, *_ = plan(seq(repeat(block(16, RESNET_3_3), 2), gap())).layers
    assert first.is_first_layer and not second.is_first_layer
    assert [part.name for part in first.parts if part.is_first_layer] == ["conv1"]


def test_a_repeated_stage_is_one_projection_and_identities():
    stage = repeat(block(4, 32, RESNET_1_3_1_DS), 3)
    assert kinds(stage) == ["bottleneck_projection", "bottleneck_identity", "bottleneck_identity"]


@unhurried
@given(networks())
def test_fused_and_unfused_plans_describe_the_same_network(network):
    tree, size = network
    fused, unfused = (ArchPlan.from_blueprint(tree, size, fuse=f, amp=True) for f in (True, False))
    assert fused.primitives() == unfused.layers == unfused.primitives()
    assert fused.weights() == unfused.weights()
    assert fused.statistics() == unfused.statistics()
    assert fused.parameter_count == unfused.parameter_count
    assert fused.flops == unfused.flops
    assert fused.stored_channels == unfused.stored_channels
