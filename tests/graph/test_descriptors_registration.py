"""A layer kind from outside the package: registered, written, planned, saved, like any other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from math import prod

import pytest

from renaissance.core.errors import ShapeError
from renaissance.core.types import Shape, WeightGroup
from renaissance.graph import params as p
from renaissance.graph import registry
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import Layer, cbr, conv, fc, gap, layer, relu, repeat, seq
from renaissance.graph.layer import ArchLayer, LayerDescriptor, WeightSpec
from renaissance.graph.registry import descriptor_of, register_layer_kind


@dataclass(frozen=True, slots=True)
class Prelu:
    """A leaky ReLU whose slopes, one per channel, are learned."""

    start: float = 0.25


def prelu_weights(layer_: ArchLayer) -> tuple[WeightSpec, ...]:
    return (WeightSpec("slope", (layer_.in_shape.c,), WeightGroup.BN_WEIGHT),)


def same_shape(params: Prelu, shape: Shape) -> Shape:
    if shape.h == 13:
        raise ShapeError("an unlucky height of 13")
    return shape


PRELU = LayerDescriptor("prelu", Prelu, same_shape, weights=prelu_weights)


@dataclass(frozen=True, slots=True)
class Separable:
    """A depthwise convolution of some kernels and a 1x1 convolution."""

    out: int
    kernels: tuple[int, ...]


def expand_separable(params: Separable, in_shape: Shape) -> Layer:
    layers = [layer("conv_dw", p.ConvDw(k, 1, k // 2)) for k in params.kernels]
    return seq(*layers, conv(params.out, 1))


SEPARABLE = LayerDescriptor("separable", Separable, lambda params, s: s._replace(c=params.out))


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Kinds that a test registers are gone after it."""
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))


def test_a_new_primitive_is_part_of_plans():
    register_layer_kind(PRELU)
    tree = seq(conv(4, 3), layer("prelu", Prelu()), relu(), layer("prelu", Prelu(0.1)), gap())
    plan = ArchPlan.from_blueprint(tree, (8, 8, 3), amp=True)
    assert [x.name for x in plan.layers[:-1]] == ["conv1", "prelu1", "relu1", "prelu2", "gap1"]
    assert [(name, spec.shape) for name, spec, _ in plan.weights()] == [
        ("conv1.weight", (4, 3, 3, 3)),
        ("prelu1.slope", (4,)),
        ("prelu2.slope", (4,)),
    ]
    assert plan.parameter_count == prod((4, 3, 3, 3)) + 8
    assert ArchPlan.from_yaml(plan.to_yaml()) == plan
    assert "prelu1" in str(plan)


def test_it_prints_and_pickles_like_any_other():
    register_layer_kind(PRELU)
    tree = repeat(layer("prelu", Prelu(0.1)), 2)
    assert repr(tree) == "repeat(layer('prelu', Prelu(start=0.1)), 2)"
    assert eval(repr(tree), {"repeat": repeat, "layer": layer, "Prelu": Prelu}) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_its_shape_errors_name_the_layer():
    register_layer_kind(PRELU)
    with pytest.raises(ShapeError, match="^prelu1: layer.*on 1x13x4x3: an unlucky height of 13$"):
        ArchPlan.from_blueprint(seq(layer("prelu", Prelu()), fc(3)), (13, 4, 3))


def test_a_new_composite_expands():
    register_layer_kind(SEPARABLE, expand_separable)
    tree = seq(layer("separable", Separable(6, (3, 5))), cbr(4, 1, 1, 0), gap())
    plan = ArchPlan.from_blueprint(tree, (8, 8, 3))
    assert [x.name for x in plan.layers[:3]] == ["conv_dw1", "conv_dw2", "conv1"]
    assert [x.source_id for x in plan.layers[:4]] == [1, 1, 1, 2]
    assert plan.layers[2].out_shape == (1, 8, 8, 6)


def test_a_composite_may_see_its_input():
    @dataclass(frozen=True)
    class SameWidth:
        kernel: int

    descriptor = LayerDescriptor("same_width", SameWidth, lambda params, s: s)
    register_layer_kind(
        descriptor, lambda params, s: conv(s.c, params.kernel, 1, params.kernel // 2)
    )
    plan = ArchPlan.from_blueprint(
        seq(conv(5, 1), layer("same_width", SameWidth(3)), gap()), (4, 4, 1)
    )
    assert plan.layers[1].params == p.Conv(5, 3, 1, 1)


def test_an_expansion_that_never_ends_is_an_error():
    descriptor = LayerDescriptor("loop", p.Empty, lambda params, s: s)
    register_layer_kind(descriptor, lambda params, s: seq(relu(), layer("loop", p.Empty())))
    with pytest.raises(ValueError, match="the expansion of layer kind is 'loop', expected primi"):
        ArchPlan.from_blueprint(layer("loop", p.Empty()), (1, 1, 3))


def test_an_expansion_to_something_else_is_an_error():
    register_layer_kind(LayerDescriptor("odd", p.Empty, lambda params, s: s), lambda params, s: 7)
    with pytest.raises(TypeError, match="the expansion of layer kind 'odd' is 7, expected a Layer"):
        ArchPlan.from_blueprint(layer("odd", p.Empty()), (1, 1, 3))


def test_registering_the_same_again_changes_nothing():
    register_layer_kind(PRELU)
    register_layer_kind(PRELU)
    assert descriptor_of("prelu") is PRELU


@pytest.mark.parametrize("name", ["prelu", "conv", "add2_end", "cbr"])
def test_a_name_is_given_once(name):
    register_layer_kind(PRELU)
    message = f"layer kind '{name}' is already registered as LayerDescriptor"
    with pytest.raises(ValueError, match=message):
        register_layer_kind(replace(PRELU, kind=name, flops=lambda layer_: 1))


def test_another_expansion_under_a_name_is_an_error():
    register_layer_kind(SEPARABLE, expand_separable)
    with pytest.raises(ValueError, match="layer kind 'separable' is already registered"):
        register_layer_kind(SEPARABLE)


@pytest.mark.parametrize("name", ["", "my layer", "2fast", 3, "prelu_"])
def test_a_name_is_an_identifier(name):
    with pytest.raises(ValueError, match="layer kind is .*, expected an identifier that does not"):
        register_layer_kind(replace(PRELU, kind=name))


@pytest.mark.parametrize("name", ["seq", "add2", "repeat"])
def test_the_words_of_composition_are_taken(name):
    with pytest.raises(ValueError, match=f"layer kind is '{name}', expected another name"):
        register_layer_kind(replace(PRELU, kind=name))


def test_a_descriptor_is_asked_for():
    with pytest.raises(TypeError, match="descriptor is 'prelu', expected a LayerDescriptor"):
        register_layer_kind("prelu")


def test_parameters_must_be_hashable():
    @dataclass
    class Mutable:
        value: int = 0

    register_layer_kind(LayerDescriptor("mutable", Mutable, lambda params, s: s))
    with pytest.raises(TypeError, match="params of layer kind 'mutable' is .*, expected a frozen"):
        layer("mutable", Mutable())


def test_parameters_that_yaml_cannot_hold_are_named():
    @dataclass(frozen=True)
    class Holder:
        value: object

    register_layer_kind(LayerDescriptor("holder", Holder, lambda params, s: s))
    plan = ArchPlan.from_blueprint(seq(layer("holder", Holder(1j)), fc(3)), (1, 1, 3))
    with pytest.raises(TypeError, match="holder1.value is 1j, expected numbers, strings, None"):
        plan.to_yaml()
