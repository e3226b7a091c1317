"""A wrong argument fails at once, with the value and with what would be right."""

from __future__ import annotations

import re

import pytest

import renaissance.graph.blueprint as language
from renaissance.graph.params import Block, BlockStyle, Head

INTEGER = "expected an integer >= 1"
STYLES = ", ".join(BlockStyle.__members__)

# expression, exception, message
WRONG = [
    # sizes
    ("conv(0, 3)", ValueError, f"conv out is 0, {INTEGER}"),
    ("conv(-8, 3)", ValueError, f"conv out is -8, {INTEGER}"),
    ("conv(8, 0)", ValueError, f"conv kernel is 0, {INTEGER}"),
    ("conv(8, 3, 0)", ValueError, f"conv stride is 0, {INTEGER}"),
    ("conv(8, 3, 1, -1)", ValueError, "conv pad is -1, expected an integer >= 0"),
    ("conv(8.0, 3)", TypeError, f"conv out is 8.0, {INTEGER}"),
    ("conv(True, 3)", TypeError, f"conv out is True, {INTEGER}"),
    ("conv('8', 3)", TypeError, f"conv out is '8', {INTEGER}"),
    ("conv(8, (3, 3))", TypeError, f"conv kernel is (3, 3), {INTEGER}"),
    ("conv_dw(0)", ValueError, f"conv_dw kernel is 0, {INTEGER}"),
    ("conv_dw(3, -2)", ValueError, f"conv_dw stride is -2, {INTEGER}"),
    ("group_conv(8, 0, 3)", ValueError, f"group_conv groups is 0, {INTEGER}"),
    ("group_conv(8, 3, 1)", ValueError, "group_conv out is 8, expected a multiple of groups=3"),
    ("fc(0)", ValueError, f"fc out is 0, {INTEGER}"),
    ("fc(10, 1)", TypeError, "fc bias is 1, expected True or False"),
    ("gap_fc(10, None)", TypeError, "gap_fc bias is None, expected True or False"),
    ("flatten(0)", ValueError, "flatten start_dim is 0, expected an integer in [1, 3]"),
    ("flatten(4)", ValueError, "flatten start_dim is 4, expected an integer in [1, 3]"),
    ("cbr(8, 3, 1, -1)", ValueError, "cbr pad is -1, expected an integer >= 0"),
    ("cbrp(8, 3, 1, 1, 0, 2, 0)", ValueError, f"cbrp pool_kernel is 0, {INTEGER}"),
    # windows that would see nothing but padding
    ("maxpool(3, 2, 2)", ValueError, "pool pad is 2, expected at most half the window: 3 // 2"),
    ("avgpool(2, 2, 2)", ValueError, "pool pad is 2, expected at most half the window: 2 // 2"),
    (
        "cbrp(8, 3, 1, 1, 2, 2, 2)",
        ValueError,
        "cbrp pool pad is 2, expected at most half the window: 2 // 2",
    ),
    # reals
    ("dropout(1)", ValueError, "dropout p is 1, expected a finite number in [0, 1)"),
    ("dropout(-0.1)", ValueError, "dropout p is -0.1, expected a finite number in [0, 1)"),
    ("dropout(float('nan'))", ValueError, "dropout p is nan, expected a finite number in [0, 1)"),
    ("dropout('half')", TypeError, "dropout p is 'half', expected a finite number in [0, 1)"),
    ("bn(1.5)", ValueError, "bn momentum is 1.5, expected a finite number in [0, 1]"),
    ("bn(0.1, 0)", ValueError, "bn eps is 0, expected a finite number > 0"),
    ("cbr(8, 3, 1, 1, -1)", ValueError, "cbr momentum is -1, expected a finite number in [0, 1]"),
    # composition
    ("seq()", ValueError, "seq() is empty, expected at least one layer; identity() does nothing"),
    ("seq(relu(), 3)", TypeError, "seq argument 2 is 3, expected a Layer"),
    (
        "seq([relu()])",
        TypeError,
        "seq argument 1 is [relu()], expected a Layer (unpack a list with *: seq(*layers))",
    ),
    (
        "seq(BluePrint(relu()))",
        TypeError,
        "seq argument 1 is BluePrint(relu()), expected a Layer "
        "(take the tree of a BluePrint: blueprint.layer)",
    ),
    ("add2(None, relu())", TypeError, "add2 shortcut is None, expected a Layer"),
    ("add2(relu(), 'main')", TypeError, "add2 main is 'main', expected a Layer"),
    ("repeat(relu(), 0)", ValueError, f"repeat times is 0, {INTEGER}"),
    ("repeat(relu(), -2)", ValueError, f"repeat times is -2, {INTEGER}"),
    ("repeat(relu(), 1.5)", TypeError, f"repeat times is 1.5, {INTEGER}"),
    ("repeat(2, relu())", TypeError, f"repeat times is relu(), {INTEGER}"),
    ("BluePrint(3)", TypeError, "BluePrint layer is 3, expected a Layer"),
    ("BluePrint(relu(), 3)", TypeError, "BluePrint name is 3, expected a string or None"),
    # blocks
    ("block(8, 'RESNET')", ValueError, f"block style is 'RESNET', expected one of {STYLES}"),
    ("block(8, 3)", TypeError, f"block style is 3, expected one of {STYLES}"),
    ("block(0, RESNET_3_3)", ValueError, f"block out is 0, {INTEGER}"),
    ("block(0, 8, RESNET_1_3_1)", ValueError, f"block mid is 0, {INTEGER}"),
    (
        "block(8, RESNET_1_3_1)",
        ValueError,
        "block mid of style RESNET_1_3_1 is None, expected block(mid, out, RESNET_1_3_1)",
    ),
    (
        "block(4, 8, RESNET_3_3)",
        ValueError,
        "block mid of style RESNET_3_3 is 4, expected block(out, RESNET_3_3)",
    ),
    (
        "block(4, 8, MB_E6_K3)",
        ValueError,
        "block mid of style MB_E6_K3 is 4, expected block(out, MB_E6_K3)",
    ),
    ("mbconv(3, 8, 1)", ValueError, "mbconv expand is 3, expected 1 or 6"),
    ("mbconv(6, 8, 3)", ValueError, "mbconv stride is 3, expected 1 or 2"),
    # calls
    (
        "conv(8, 3, stride=2)",
        TypeError,
        "conv: got an unexpected keyword argument 'stride'; expected conv(out, k, s=1, p=0)",
    ),
    ("conv(8)", TypeError, "conv: missing a required argument: 'k'; expected conv(out, k, s=1"),
    ("relu(6)", TypeError, "relu: too many positional arguments; expected relu()"),
    ("gap_fc(10)", TypeError, "gap_fc: missing a required argument: 'bias'; expected gap_fc(out"),
    ("maxpool(2, 2)", TypeError, "maxpool: missing a required argument: 'p'; expected maxpool(k"),
    (
        "seq(relu(), name='x')",
        TypeError,
        "seq: got an unexpected keyword argument 'name'; expected seq(*layers)",
    ),
    (
        "block(8)",
        TypeError,
        "block: got (8); expected block(mid, out, style) or block(out, style)",
    ),
    (
        "block(8, kind=RESNET_3_3)",
        TypeError,
        "block: got (8, kind=RESNET_3_3); expected block(mid, out, style) or block(out, style)",
    ),
    (
        "block(1, 2, 3, 4)",
        TypeError,
        "block: got (1, 2, 3, 4); expected block(mid, out, style) or block(out, style)",
    ),
    (
        "block(4, 8, RESNET_1_3_1, out=9)",
        TypeError,
        "block: got (4, 8, RESNET_1_3_1, out=9); expected block(mid, out, style) or block(out",
    ),
]


@pytest.mark.parametrize("expression, kind, message", WRONG, ids=[case[0] for case in WRONG])
def test_a_wrong_argument_is_named_with_its_rule(expression, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        eval(expression, vars(language))


def test_a_factory_that_was_not_called_is_noticed():
    with pytest.raises(TypeError, match=r"expected a Layer \(call the factory: relu\(\), not relu"):
        language.seq(language.relu)


def test_the_generic_factory_knows_only_what_is_registered():
    with pytest.raises(ValueError, match="layer kind is 'warp', expected one of add2_end, "):
        language.layer("warp", Head(3))
    with pytest.raises(ValueError, match="layer kind is 7, expected one of"):
        language.layer(7, Head(3))


@pytest.mark.parametrize("kind", ["add2_start", "add2_end", "bottleneck_identity"])
def test_what_only_a_plan_contains_cannot_be_written(kind):
    with pytest.raises(ValueError, match=f"layer kind is '{kind}', expected a kind a blueprint"):
        language.layer(kind, None)


def test_the_generic_factory_asks_for_the_record_of_the_kind():
    with pytest.raises(TypeError, match="params of layer kind 'fc' is 10, expected a Fc"):
        language.layer("fc", 10)


def test_a_record_refuses_a_style_that_is_none():
    with pytest.raises(TypeError, match="block style is 'RESNET_3_3', expected a BlockStyle"):
        Block(None, 8, "RESNET_3_3")
