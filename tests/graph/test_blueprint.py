"""The model language: layers are values, and print as the expression that builds them."""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle

import pytest
from hypothesis import given

import renaissance.graph.blueprint as language
from renaissance.graph.blueprint import (
    MB_E6_K3,
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    BluePrint,
    Layer,
    add2,
    block,
    bn,
    cbr,
    conv,
    fc,
    gap_fc,
    identity,
    relu,
    repeat,
    seq,
)
from renaissance.graph.params import Conv, ConvBnReluPool

from .random_trees import networks, unhurried

SIGNATURES = {
    "conv": "(out, k, s=1, p=0)",
    "conv_dw": "(k, s=1, p=0)",
    "group_conv": "(out, groups, k, s=1, p=0)",
    "bn": "(momentum=0.1, eps=1e-05)",
    **dict.fromkeys(("relu", "relu6", "leaky_relu", "silu", "hardswish", "elu"), "()"),
    **dict.fromkeys(("sigmoid", "tanh_act", "gap", "identity", "channel_padding"), "()"),
    "dropout": "(p)",
    "maxpool": "(k, s, p)",
    "avgpool": "(k, s, p)",
    "fc": "(out, bias=True)",
    "flatten": "(start_dim=1)",
    "seq": "(*layers)",
    "add2": "(shortcut, main)",
    "repeat": "(body, times)",
    "cbr": "(out, k, s, p, momentum=0.1, eps=1e-05)",
    "conv_bn_relu": "(out, k, s, p, momentum=0.1, eps=1e-05)",
    "cbrp": "(out, ck, cs, cp, pk, ps, pp)",
    "gap_fc": "(out, bias)",
    "mbconv": "(expand, out, stride)",
}

# One expression of every factory, each written as repr prints it.
EXPRESSIONS = (
    "conv(64, 3)",
    "conv(64, 3, 1, 1)",
    "conv(64, 3, 2)",
    "conv_dw(3)",
    "conv_dw(3, 2, 1)",
    "group_conv(8, 2, 3)",
    "bn()",
    "bn(0.2)",
    "bn(0.1, 0.001)",
    "relu()",
    "relu6()",
    "leaky_relu()",
    "silu()",
    "hardswish()",
    "elu()",
    "sigmoid()",
    "tanh_act()",
    "dropout(0.5)",
    "maxpool(3, 2, 1)",
    "avgpool(2, 2, 0)",
    "gap()",
    "fc(10)",
    "fc(10, False)",
    "flatten()",
    "flatten(2)",
    "identity()",
    "channel_padding()",
    "seq(relu())",
    "seq(conv(8, 3), bn(), relu())",
    "add2(identity(), seq(conv(8, 1), bn()))",
    "repeat(seq(relu(), bn()), 3)",
    "cbr(64, 3, 1, 1)",
    "cbr(64, 3, 1, 1, 0.3)",
    "cbr(64, 3, 1, 1, 0.1, 0.01)",
    "cbrp(64, 7, 2, 3, 3, 2, 1)",
    "gap_fc(10, True)",
    "gap_fc(10, False)",
    "block(64, 256, RESNET_1_3_1)",
    "block(64, 256, RESNET_1_3_1_DS)",
    "block(64, RESNET_3_3)",
    "block(64, RESNET_3_3_DS)",
    "block(16, MB_E1_K3)",
    "block(16, MB_E1_K3_DS)",
    "block(16, MB_E6_K3)",
    "block(16, MB_E6_K3_DS)",
    "mbconv(6, 24, 2)",
)


def build(expression: str):
    return eval(expression, vars(language))


@pytest.mark.parametrize("name, signature", SIGNATURES.items())
def test_a_factory_has_the_signature_of_the_contract(name, signature):
    parameters = inspect.signature(getattr(language, name)).parameters.values()
    bare = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    assert f"({', '.join(map(str, bare))})" == signature


def test_conv_bn_relu_is_another_name_of_cbr():
    assert language.conv_bn_relu is language.cbr


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_repr_is_the_expression_that_builds_the_layer(expression):
    assert repr(build(expression)) == expression


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_layers_built_alike_are_equal_and_hash_alike(expression):
    one, other = build(expression), build(expression)
    assert one is not other
    assert one == other
    assert hash(one) == hash(other)


def test_layers_built_differently_differ():
    layers = [build(expression) for expression in EXPRESSIONS]
    assert len(set(layers)) == len(layers)
    assert all(a != b for i, a in enumerate(layers) for b in layers[:i])


def test_structure_counts_not_only_content():
    a, b, c = relu(), bn(), fc(3)
    assert seq(a, b, c) != seq(seq(a, b), c) != seq(a, seq(b, c))
    assert add2(a, b) != add2(b, a)
    assert seq(a, a) != repeat(a, 2)


def test_a_layer_differs_from_what_is_no_layer():
    assert relu() != "relu()"
    assert relu() != None  # noqa: E711  the comparison itself is tested


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_layer_survives_pickling_and_copying(expression):
    layer = build(expression)
    assert pickle.loads(pickle.dumps(layer)) == layer
    assert copy.deepcopy(layer) is layer
    assert copy.copy(layer) is layer


def test_a_layer_is_immutable():
    layer = conv(8, 3)
    with pytest.raises(AttributeError, match="a Layer is immutable: cannot set 'kind'"):
        layer.kind = "fc"
    with pytest.raises(AttributeError, match="a Layer is immutable: cannot set 'name'"):
        layer.name = "mine"
    with pytest.raises(AttributeError, match="a Layer is immutable: cannot delete 'params'"):
        del layer.params
    with pytest.raises(AttributeError):
        layer.params.out = 9
    assert layer == conv(8, 3)


def test_keywords_and_positions_build_the_same_layer():
    assert conv(out=8, k=3, p=1) == conv(8, 3, 1, 1)
    assert gap_fc(out=10, bias=True) == gap_fc(10, True)
    assert block(mid=4, out=16, style=RESNET_1_3_1) == block(4, 16, RESNET_1_3_1)
    assert block(out=16, style=RESNET_3_3) == block(16, RESNET_3_3) == block(16, style=RESNET_3_3)
    assert block(4, out=16, style=RESNET_1_3_1) == block(4, 16, RESNET_1_3_1)


def test_a_style_may_be_given_by_its_name():
    assert block(16, "MB_E6_K3") == block(16, MB_E6_K3)
    assert block(4, 16, "RESNET_1_3_1_DS") == block(4, 16, RESNET_1_3_1_DS)


def test_numbers_are_normalised():
    assert bn(1, 1) == bn(1.0, 1.0)
    assert repr(bn(1, 1)) == "bn(1.0, 1.0)"


def test_a_layer_shows_its_record_and_children():
    assert conv(8, 3, 2, 1).params == Conv(out=8, kernel=3, stride=2, pad=1)
    assert language.cbrp(64, 7, 2, 3, 5, 4, 1).params == ConvBnReluPool(64, 7, 2, 3, 5, 4, 1)
    tree = seq(relu(), repeat(bn(), 3))
    assert tree.children == (relu(), repeat(bn(), 3))
    assert (tree.size, tree.leaves) == (4, 4)


def test_a_blueprint_names_a_tree():
    tree = seq(cbr(8, 3, 1, 1), gap_fc(10, True))
    model = BluePrint(tree, "tiny")
    assert (model.layer, model.name) == (tree, "tiny")
    assert model == BluePrint(tree, "tiny") != BluePrint(tree)
    assert hash(model) == hash(BluePrint(tree, "tiny"))
    assert repr(model) == "BluePrint(seq(cbr(8, 3, 1, 1), gap_fc(10, True)), 'tiny')"
    assert build(repr(model)) == model
    assert build(repr(BluePrint(tree))) == BluePrint(tree)
    assert pickle.loads(pickle.dumps(model)) == model
    with pytest.raises(AttributeError):
        model.name = "other"


@unhurried
@given(networks())
def test_any_tree_is_built_again_by_its_repr_and_by_pickle(network):
    tree, _ = network
    for again in (build(repr(tree)), pickle.loads(pickle.dumps(tree))):
        assert isinstance(again, Layer)
        assert again == tree
        assert hash(again) == hash(tree)


def test_all_that_is_exported_exists():
    assert len(set(language.__all__)) == len(language.__all__)
    assert all(hasattr(language, name) for name in language.__all__)
    assert set(SIGNATURES) | {"block", "layer"} <= set(language.__all__)


def test_examples_in_the_documentation_hold():
    assert doctest.testmod(language).failed == 0
    assert identity() == language.identity()
