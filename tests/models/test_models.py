"""The networks against their published architectures, layer by layer."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable

import pytest

import renaissance.graph.blueprint as language
from renaissance import models
from renaissance.core.errors import ShapeError
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import BluePrint
from renaissance.graph.descriptors.residual import MARKERS
from renaissance.graph.registry import descriptor_of

from . import published

# name, what is published, input, options; the CIFAR forms have another stem and ten classes
NETWORKS: list[tuple[str, Callable[..., list[published.Row]], int, dict]] = [
    ("vgg16_bn", published.vgg16_bn, 224, {}),
    ("resnet18", published.resnet18, 224, {}),
    ("resnet34", published.resnet34, 224, {}),
    ("resnet50", published.resnet50, 224, {}),
    ("mobilenet_v2", published.mobilenet_v2, 224, {}),
    ("resnet18", published.resnet18, 256, {}),
    ("mobilenet_v2", published.mobilenet_v2, 160, {"num_classes": 7}),
    ("resnet18", published.resnet18, 32, {"num_classes": 10, "stem": "cifar"}),
    ("resnet34", published.resnet34, 32, {"num_classes": 10, "stem": "cifar"}),
    ("resnet50", published.resnet50, 32, {"num_classes": 100, "stem": "cifar"}),
]

PARAMETERS = {
    "mlp": 1_462_538,
    "vgg16_bn": 138_361_768,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    # as published without the biases of the convolutions
    "lenet": 61_706 - (6 + 16),
    # filters, and two values for every channel that is normalised
    "nin": (25 * 3 + 160) * 192
    + 160 * 96
    + (25 * 96 + 2 * 192) * 192
    + (9 * 192 + 192 + 10) * 192
    + 2 * (192 + 160 + 96 + 3 * 192 + 2 * 192 + 10),
}

# Multiply-adds at 224x224 in 10^9, as torchvision states them with its weights.
GIGA_MULTIPLY_ADDS = {
    "vgg16_bn": 15.47,
    "resnet18": 1.814,
    "resnet34": 3.664,
    "resnet50": 4.089,
    "mobilenet_v2": 0.301,
}

# Maps that the papers' tables give after the stem and each stage.
STAGES = {
    "vgg16_bn": "112x112x64 56x56x128 28x28x256 14x14x512 7x7x512",
    "resnet18": "56x56x64 28x28x128 14x14x256 7x7x512",
    "resnet34": "56x56x64 28x28x128 14x14x256 7x7x512",
    "resnet50": "56x56x64 56x56x256 28x28x512 14x14x1024 7x7x2048",
    "mobilenet_v2": "112x112x32 112x112x16 56x56x24 28x28x32 14x14x64 14x14x96 7x7x160 7x7x320 "
    "7x7x1280",
}


def plan(name: str, amp: bool = False, **options) -> ArchPlan:
    shape = models.default_input_shape(name, options.get("stem", "imagenet"))
    return ArchPlan.from_blueprint(models.by_name(name, **options), shape, amp=amp)


def rows(plan: ArchPlan) -> list[published.Row]:
    """The plan's primitives; markers, flatten and head are ours alone."""
    found = []
    for layer in plan.primitives():
        if layer.kind in (*MARKERS, "flatten", "softmax_cross_entropy"):
            continue
        descriptor = descriptor_of(layer.kind)
        parameters = 0
        for spec in descriptor.weights(layer):
            count = 1
            for extent in spec.shape:
                count *= extent
            parameters += count
        operations = descriptor.flops(layer)
        assert operations % 2 == 0
        found.append(published.Row(layer.kind, layer.out_shape[1:], parameters, operations // 2))
    return found


@pytest.mark.parametrize("name, architecture, side, options", NETWORKS)
@pytest.mark.parametrize("amp", [False, True])
def test_every_layer_is_as_published(name, architecture, side, options, amp):
    model = models.by_name(name, **options)
    expected = architecture(options.get("num_classes", 1000), side)
    found = rows(ArchPlan.from_blueprint(model, (side, side, 3), amp=amp))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == theirs


@pytest.mark.parametrize("amp", [False, True])
def test_every_layer_of_the_mlp(amp):
    assert rows(plan("mlp", amp)) == published.mlp()


@pytest.mark.parametrize("name, count", PARAMETERS.items())
@pytest.mark.parametrize("amp", [False, True])
def test_parameters(name, count, amp):
    assert plan(name, amp).parameter_count == count


@pytest.mark.parametrize("name, giga", GIGA_MULTIPLY_ADDS.items())
def test_operations(name, giga):
    digits = len(str(giga).split(".")[1])
    assert round(plan(name).flops / 2e9, digits) == giga


@pytest.mark.parametrize("name, stages", STAGES.items())
def test_the_maps_of_the_stages(name, stages):
    maps: list[str] = []
    for layer in plan(name, amp=True).layers:
        text = "x".join(map(str, layer.out_shape[1:]))
        if layer.out_shape.is_spatial and text not in maps:
            maps.append(text)
    expected = stages.split()
    # the fused VGG also shows the maps inside a stage, before its pool
    assert [text for text in maps if text in expected] == expected


@pytest.mark.parametrize(
    "name, expected",
    [
        ("resnet18", "cbrp 1, basic_block_identity 5, basic_block_projection 3, gap_fc 1"),
        ("resnet34", "cbrp 1, basic_block_identity 13, basic_block_projection 3, gap_fc 1"),
        ("resnet50", "cbrp 1, bottleneck_projection 4, bottleneck_identity 12, gap_fc 1"),
        ("vgg16_bn", "cbr 8, cbrp 5, flatten 1, fc 3, relu 2, dropout 2"),
        (
            "mobilenet_v2",
            "conv 2, bn2d 2, relu6 2, inv_residual_no_shortcut 7, inv_residual_identity 10, gap 1, "
            "dropout 1, fc 1",
        ),
        ("nin", "cbr 8, cbrp 1, dropout 2, avgpool 1, gap 1"),
    ],
)
def test_fused_a_network_is_its_blocks(name, expected):
    counts: dict[str, int] = {}
    for layer in plan(name, amp=True).layers[:-1]:
        counts[layer.kind] = counts.get(layer.kind, 0) + 1
    assert ", ".join(f"{kind} {count}" for kind, count in counts.items()) == expected


@pytest.mark.parametrize("name", models.names())
@pytest.mark.parametrize("amp", [False, True])
def test_every_model_becomes_a_plan_of_the_classes_asked_for(name, amp):
    found = plan(name, amp, num_classes=7)
    assert found.num_classes == 7
    assert found.name == name
    assert ArchPlan.from_yaml(found.to_yaml()) == found


@pytest.mark.parametrize("name", models.names())
def test_every_model_prints_as_the_expression_that_builds_it(name):
    model = models.by_name(name)
    assert isinstance(model, BluePrint)
    assert eval(repr(model), vars(language)) == model


def test_the_cifar_stem_keeps_the_resolution():
    layers = plan("resnet18", amp=True, stem="cifar", num_classes=10).layers
    assert layers[0].out_shape == (1, 32, 32, 64)
    assert layers[-3].out_shape == (1, 4, 4, 512)


def test_options_change_the_network():
    narrow = ArchPlan.from_blueprint(models.mlp(hidden=(32,)), (28, 28, 1))
    assert narrow.parameter_count == 784 * 32 + 32 + 32 * 10 + 10
    small = ArchPlan.from_blueprint(models.vgg16_bn(10, 0.1, width=512), (32, 32, 3))
    assert [x.out_shape.c for x in small.layers if x.kind == "fc"] == [512, 512, 10]
    assert {x.params.p for x in small.layers if x.kind == "dropout"} == {0.1}
    dropped = ArchPlan.from_blueprint(models.mobilenet_v2(drop=0.5), (64, 64, 3))
    assert [x.params.p for x in dropped.layers if x.kind == "dropout"] == [0.5]


def test_by_name_is_the_function_of_that_name():
    assert set(models.names()) <= set(dir(models))
    for name in models.names():
        assert models.by_name(name) == getattr(models, name)()
    assert models.by_name("resnet50", num_classes=10) == models.resnet50(10)


def test_an_unknown_name_is_told_the_known_ones():
    message = "model is 'alexnet', expected one of mlp, lenet, nin, vgg16_bn, resnet18, resnet34"
    for ask in (models.by_name, models.default_input_shape):
        with pytest.raises(ValueError, match=message):
            ask("alexnet")


def test_a_wrong_option_is_told_the_right_ones():
    message = "resnet18: got an unexpected keyword argument 'width'; expected resnet18.num_classes="
    with pytest.raises(TypeError, match=message):
        models.by_name("resnet18", width=2)
    with pytest.raises(ValueError, match="ResNet stem is 'mnist', expected 'imagenet' or 'cifar'"):
        models.resnet50(stem="mnist")
    with pytest.raises(ValueError, match="fc out is 0, expected an integer >= 1"):
        models.mlp(num_classes=0)


def test_an_image_too_small_names_the_layer_that_fails():
    with pytest.raises(ShapeError, match=r"^maxpool5: maxpool\(2, 2, 0\) on 1x1x1x512: the output"):
        ArchPlan.from_blueprint(models.vgg16_bn(), (16, 16, 3))


def test_a_resnet_is_about_fourteen_lines():
    body = inspect.getsource(models.resnet50).splitlines()
    assert len(body) <= 14


def test_examples_in_the_documentation_hold():
    assert doctest.testmod(models).failed == 0
