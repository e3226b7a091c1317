"""Steps 1 to 6, and the mark of step 10: each alone, on lists written by hand."""

from __future__ import annotations

import re

import pytest

from renaissance.core.errors import PlanError, ShapeError
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph import params as p
from renaissance.graph.arch_plan import (
    STEPS,
    FlatLayer,
    drop_identities,
    expand_tree,
    finish_with_head,
    infer_shapes,
    merge_pairs_and_mark_first,
    name_batch_norms,
    normalise_flatten,
)
from renaissance.graph.blueprint import (
    MB_E1_K3,
    MB_E6_K3,
    MB_E6_K3_DS,
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    add2,
    block,
    bn,
    cbr,
    cbrp,
    conv,
    fc,
    gap_fc,
    identity,
    layer,
    maxpool,
    mbconv,
    relu,
    relu6,
    repeat,
    seq,
)
from renaissance.graph.registry import descriptor_of

MAP = Shape(1, 8, 8, 16)
VECTOR = Shape(1, 1, 1, 16)

RECORDS = {
    "conv": p.Conv(16, 3, 1, 1),
    "bn": p.BatchNorm(),
    "fc": p.Fc(4),
    "flatten": p.Flatten(),
    "gap": p.Gap(),
    "maxpool": p.Pool(2, 2, 0),
    "softmax_cross_entropy": p.Head(4),
    **dict.fromkeys(("identity", "add2_start", "add2_shortcut_end", "add2_end"), p.Empty()),
    **dict.fromkeys(("relu", "relu6", "sigmoid"), p.Activation()),
}


def flat(kinds: str) -> list[FlatLayer]:
    """A list of layers of these kinds, with usual parameters."""
    return [FlatLayer(kind, RECORDS[kind], kind) for kind in kinds.split()]


def kinds(layers) -> str:
    return " ".join(layer.kind for layer in layers)


def names(layers) -> str:
    return " ".join(layer.name for layer in layers)


def test_there_are_ten_steps_in_order():
    assert [step.__name__ for step in STEPS] == [
        "expand_tree",
        "name_batch_norms",
        "finish_with_head",
        "drop_identities",
        "normalise_flatten",
        "infer_shapes",
        "merge_residuals",
        "merge_quadruples",
        "merge_triples",
        "merge_pairs_and_mark_first",
    ]
    assert all(f"Step {i}:" in str(step.__doc__) for i, step in enumerate(STEPS, 1))


class TestExpandTree:
    def test_a_leaf_is_a_list_of_one(self):
        assert expand_tree(fc(3), VECTOR) == [FlatLayer("fc", p.Fc(3), "fc1", 0)]

    def test_layers_are_numbered_by_kind_and_batch_norms_are_left_to_the_next_step(self):
        tree = seq(conv(4, 1), bn(), relu(), seq(conv(4, 1), bn(), relu6()), relu())
        assert names(expand_tree(tree, MAP)) == "conv1  relu1 conv2  relu6_1 relu2"

    def test_a_kind_that_ends_in_a_digit_is_not_taken_for_another(self):
        flat_list = expand_tree(seq(relu6(), *[relu()] * 61), MAP)
        assert len({layer.name for layer in flat_list}) == 62

    def test_an_add_becomes_three_markers_of_one_number(self):
        tree = add2(conv(16, 1), add2(identity(), seq(relu(), relu())))
        assert names(expand_tree(tree, MAP)) == (
            "add2_start1 conv1 add2_shortcut_end1 "
            "add2_start2 identity1 add2_shortcut_end2 relu1 relu2 add2_end2 add2_end1"
        )

    def test_the_source_is_the_place_in_the_blueprint(self):
        tree = seq(relu(), repeat(seq(bn(), relu()), 2), cbr(4, 1, 1, 0), fc(3))
        #      0   1       2      3   4     5            6                7
        sources = [layer.source_id for layer in expand_tree(tree, MAP)]
        assert sources == [1, 4, 5, 4, 5, 6, 6, 6, 7]

    def test_repeat_copies_its_body(self):
        assert kinds(expand_tree(repeat(seq(conv(4, 1), relu()), 3), MAP)) == " ".join(
            ["conv relu"] * 3
        )

    @pytest.mark.parametrize(
        "tree, expected",
        [
            (cbr(8, 3, 2, 1), "conv bn relu"),
            (cbrp(8, 3, 1, 1, 2, 2, 0), "conv bn relu maxpool"),
            (gap_fc(10, True), "gap fc"),
            (mbconv(1, 8, 1), "conv_dw bn relu6 conv bn"),
            (mbconv(6, 8, 1), "conv bn relu6 conv_dw bn relu6 conv bn"),
        ],
    )
    def test_a_unit_expands_to_primitives(self, tree, expected):
        assert kinds(expand_tree(tree, MAP)) == expected

    def test_a_unit_hands_its_numbers_on(self):
        conv_, bn_, _, pool = expand_tree(cbrp(8, 7, 2, 3, 5, 4, 1), MAP)
        assert conv_.params == p.Conv(8, 7, 2, 3)
        assert pool.params == p.Pool(5, 4, 1)
        assert bn_.params == p.BatchNorm()
        conv_, bn_, _ = expand_tree(cbr(8, 5, 2, 3, 0.2, 1e-3), MAP)
        assert (conv_.params, bn_.params) == (p.Conv(8, 5, 2, 3), p.BatchNorm(0.2, 1e-3))
        assert expand_tree(gap_fc(8, False), MAP)[1].params == p.Fc(8, False)


BOTTLENECK = "conv bn relu conv bn relu conv bn"
BASIC = "conv bn relu conv bn"
INVERTED = "conv bn relu6 conv_dw bn relu6 conv bn"


def added(main: str, shortcut: str = "identity") -> str:
    return f"add2_start {shortcut} add2_shortcut_end {main} add2_end"


class TestExpandBlocks:
    """What a block becomes depends on the width it is given: MAP has 16 channels."""

    @pytest.mark.parametrize(
        "tree, expected",
        [
            (block(4, 16, RESNET_1_3_1), added(BOTTLENECK) + " relu"),
            (block(4, 32, RESNET_1_3_1), added(BOTTLENECK, "conv bn") + " relu"),
            (block(4, 16, RESNET_1_3_1_DS), added(BOTTLENECK, "conv bn") + " relu"),
            (block(16, RESNET_3_3), added(BASIC) + " relu"),
            (block(8, RESNET_3_3), added(BASIC, "conv bn") + " relu"),
            (block(16, RESNET_3_3_DS), added(BASIC, "conv bn") + " relu"),
            (block(16, MB_E6_K3), added(INVERTED)),
            (block(8, MB_E6_K3), INVERTED),
            (block(16, MB_E6_K3_DS), INVERTED),
            (block(16, MB_E1_K3), added("conv_dw bn relu6 conv bn")),
            (mbconv(6, 16, 1), added(INVERTED)),
            (mbconv(6, 16, 2), INVERTED),
        ],
    )
    def test_a_shortcut_projects_only_where_the_shape_changes(self, tree, expected):
        assert kinds(expand_tree(tree, MAP)) == expected

    def test_the_stride_of_a_bottleneck_sits_on_its_3x3(self):
        flat_list = expand_tree(block(4, 32, RESNET_1_3_1_DS), MAP)
        convs = [x.params for x in flat_list if x.kind == "conv"]
        assert convs == [
            p.Conv(32, 1, 2, 0),
            p.Conv(4, 1, 1, 0),
            p.Conv(4, 3, 2, 1),
            p.Conv(32, 1, 1, 0),
        ]

    def test_the_stride_of_a_basic_block_sits_on_its_first_3x3(self):
        flat_list = expand_tree(block(32, RESNET_3_3_DS), MAP)
        convs = [x.params for x in flat_list if x.kind == "conv"]
        assert convs == [p.Conv(32, 1, 2, 0), p.Conv(32, 3, 2, 1), p.Conv(32, 3, 1, 1)]

    def test_an_inverted_residual_widens_by_its_expansion(self):
        flat_list = expand_tree(mbconv(6, 8, 2), MAP)
        assert [x.params for x in flat_list if "conv" in x.kind] == [
            p.Conv(96, 1, 1, 0),
            p.ConvDw(3, 2, 1),
            p.Conv(8, 1, 1, 0),
        ]

    @pytest.mark.parametrize(
        "body, first, others",
        [
            (
                block(4, 32, RESNET_1_3_1_DS),
                added(BOTTLENECK, "conv bn") + " relu",
                added(BOTTLENECK) + " relu",
            ),
            (block(32, RESNET_3_3_DS), added(BASIC, "conv bn") + " relu", added(BASIC) + " relu"),
            (block(8, RESNET_3_3), added(BASIC, "conv bn") + " relu", added(BASIC) + " relu"),
            (mbconv(6, 8, 2), INVERTED, added(INVERTED)),
            (block(8, MB_E6_K3_DS), INVERTED, added(INVERTED)),
        ],
    )
    def test_repeated_the_first_copy_projects_and_the_others_are_identity_blocks(
        self, body, first, others
    ):
        flat_list = expand_tree(repeat(body, 3), MAP)
        assert kinds(flat_list) == f"{first} {others} {others}"
        strides = [x.params.stride for x in flat_list if "conv" in x.kind]
        assert strides[len(first.split()) :] == [1] * len(strides[len(first.split()) :])

    def test_a_repeated_sequence_is_copied_as_it_is(self):
        tree = repeat(seq(block(16, RESNET_3_3_DS), relu()), 2)
        one = added(BASIC, "conv bn") + " relu relu"
        assert kinds(expand_tree(tree, MAP)) == f"{one} {one}"


class TestNameBatchNorms:
    @pytest.mark.parametrize(
        "before, picked",
        [
            ("conv bn", "bn2d"),
            ("bn", "bn2d"),
            ("fc bn", "bn1d"),
            ("flatten bn", "bn1d"),
            ("flatten relu bn", "bn1d"),
            ("gap bn", "bn2d"),
            ("fc conv bn", "bn2d"),
            ("fc add2_start add2_shortcut_end conv bn add2_end", "bn2d"),
            ("conv add2_start fc add2_shortcut_end bn add2_end", "bn2d"),
            ("fc add2_start conv add2_shortcut_end bn add2_end", "bn1d"),
            ("flatten add2_start bn add2_shortcut_end add2_end", "bn1d"),
        ],
    )
    def test_bn1d_stands_after_flatten_or_fc_bn2d_elsewhere(self, before, picked):
        named = name_batch_norms(flat(before))
        assert [x.kind for x in named if x.kind.startswith("bn")] == [picked]

    def test_both_share_one_count(self):
        named = name_batch_norms(flat("conv bn bn flatten bn fc bn"))
        assert names(named) == "conv bn1 bn2 flatten bn3 fc bn4"
        assert kinds(named) == "conv bn2d bn2d flatten bn1d fc bn1d"


class TestFinishWithHead:
    def test_a_head_is_appended_for_the_width_of_the_output(self):
        *_, head = finish_with_head(flat("flatten fc"), MAP)
        assert head == FlatLayer("softmax_cross_entropy", p.Head(4), "softmax_cross_entropy1")

    def test_a_head_is_appended_for_the_number_asked_for(self):
        *_, head = finish_with_head(flat("flatten fc"), MAP, 7)
        assert head.params == p.Head(7)

    def test_a_head_that_is_there_stays(self):
        layers = flat("flatten fc softmax_cross_entropy")
        assert kinds(finish_with_head(layers, MAP)) == "flatten fc softmax_cross_entropy"
        assert finish_with_head(layers, MAP, 4) == finish_with_head(layers, MAP)

    def test_a_head_of_another_number_is_an_error(self):
        with pytest.raises(ValueError, match="num_classes is 5, expected 4, as the blueprint's"):
            finish_with_head(flat("flatten fc softmax_cross_entropy"), MAP, 5)

    def test_a_head_before_the_end_is_an_error(self):
        with pytest.raises(PlanError, match="softmax_cross_entropy is followed by other layers"):
            finish_with_head(flat("flatten fc softmax_cross_entropy relu"), MAP)


def test_identities_are_dropped():
    layers = drop_identities(flat("identity conv identity add2_start identity add2_shortcut_end"))
    assert kinds(layers) == "conv add2_start add2_shortcut_end"


class TestNormaliseFlatten:
    @pytest.mark.parametrize(
        "before, after",
        [
            ("conv fc fc", "conv flatten fc fc"),
            ("fc fc", "flatten fc fc"),
            ("flatten fc", "flatten fc"),
            ("conv flatten relu flatten fc", "conv flatten relu fc"),
            ("gap flatten fc", "gap fc"),
            ("gap fc", "gap fc"),
            ("conv flatten", "conv flatten"),
            (
                "add2_start fc add2_shortcut_end fc add2_end",
                "add2_start flatten fc add2_shortcut_end flatten fc add2_end",
            ),
        ],
    )
    def test_exactly_one_flatten_stands_where_a_map_becomes_a_vector(self, before, after):
        assert kinds(normalise_flatten(flat(before), MAP)) == after

    def test_they_are_numbered_anew(self):
        layers = normalise_flatten(flat("flatten fc flatten fc"), MAP)
        assert names(layers) == "flatten1 fc fc"

    def test_a_partial_flatten_stays(self):
        layers = [FlatLayer("flatten", p.Flatten(2)), FlatLayer("flatten", p.Flatten(3))]
        assert [x.params for x in normalise_flatten(layers, MAP)] == [p.Flatten(2)]


class TestInferShapes:
    def test_every_layer_gets_its_shapes(self):
        layers = infer_shapes(flat("conv maxpool flatten fc"), MAP)
        assert [layer.in_shape for layer in layers] == [
            (1, 8, 8, 16),
            (1, 8, 8, 16),
            (1, 4, 4, 16),
            (1, 1, 1, 256),
        ]
        assert layers[-1].out_shape == (1, 1, 1, 4)

    def test_the_main_path_starts_from_the_input_of_the_add(self):
        line = "add2_start maxpool add2_shortcut_end relu maxpool add2_end"
        layers = infer_shapes(flat(line), MAP)
        assert layers[2].in_shape == (1, 4, 4, 16)
        assert layers[2].out_shape == layers[3].in_shape == MAP
        assert layers[5].out_shape == (1, 4, 4, 16)

    def test_paths_of_different_shape_are_an_error(self):
        with pytest.raises(
            ShapeError,
            match="add2_end: the shortcut gives 1x4x4x16, the main path 1x8x8x16, expected the sam",
        ):
            infer_shapes(flat("add2_start maxpool add2_shortcut_end relu add2_end"), MAP)

    @pytest.mark.parametrize(
        "line, message",
        [
            ("add2_end", "add2_end stands alone, expected add2_shortcut_end before"),
            ("add2_start add2_end", "add2_end stands alone, expected add2_shortcut_end before"),
            ("add2_shortcut_end", "add2_shortcut_end stands alone, expected add2_start before"),
            (
                "add2_start add2_shortcut_end add2_shortcut_end",
                "add2_shortcut_end stands alone, expected add2_start before",
            ),
            ("add2_start relu", "1 add2_start left open, expected add2_end for each"),
        ],
    )
    def test_markers_without_partner_are_an_error(self, line, message):
        with pytest.raises(PlanError, match=message):
            infer_shapes(flat(line), MAP)

    @pytest.mark.parametrize(
        "tree, message",
        [
            (
                conv(4, 9),
                "conv1: conv(4, 9) on 1x8x8x16: the output height would be 0: the window is 9, "
                "expected at most the padded height: 8 + 2 * 0 = 8",
            ),
            (
                seq(relu(), maxpool(4, 2, 0), maxpool(4, 4, 0)),
                "maxpool2: maxpool(4, 4, 0) on 1x3x3x16: the output height would be 0: the window",
            ),
            (
                layer("group_conv", p.GroupConv(9, 3, 1)),
                "group_conv1: group_conv(9, 3, 1) on 1x8x8x16: the number of input channels is 16, "
                "expected a multiple of groups=3",
            ),
            (
                seq(relu(), add2(identity(), conv(8, 1))),
                "add2_end1: the shortcut gives 1x8x8x16, the main path 1x8x8x8, expected the same "
                "shape: project the shortcut, conv(...) and bn()",
            ),
        ],
    )
    def test_a_shape_a_layer_cannot_take_is_told_with_the_layers_name(self, tree, message):
        with pytest.raises(ShapeError, match=re.escape(message)):
            expand_tree(tree, MAP)

    def test_a_flat_map_narrower_than_high_names_the_width(self):
        with pytest.raises(ShapeError, match="the output width would be -1: the window is 4"):
            expand_tree(conv(4, 4), Shape(1, 4, 2, 3))


class TestMarkFirst:
    @pytest.mark.parametrize(
        "line, first",
        [
            ("conv relu conv", "conv"),
            ("relu maxpool conv", "conv"),
            ("flatten fc fc", "fc"),
            ("add2_start conv add2_shortcut_end conv add2_end", "conv"),
            ("relu", None),
        ],
    )
    def test_the_first_layer_with_weights_is_marked(self, line, first):
        layers = merge_pairs_and_mark_first(infer_shapes(flat(line), MAP), fuse=False)
        marked = [(i, x.kind) for i, x in enumerate(layers) if x.is_first_layer]
        assert marked == ([(line.split().index(first), first)] if first else [])

    def test_only_the_first_convolution_is_of_the_first_group(self):
        layers = merge_pairs_and_mark_first(infer_shapes(flat("conv conv"), MAP), fuse=False)
        groups = [descriptor_of(x.kind).weights(x)[0].group for x in layers]
        assert groups == [WeightGroup.FIRST_CONV, WeightGroup.DEEP_CONV]
