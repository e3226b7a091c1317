"""A plan goes to YAML and back without loss; what is no such document is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from renaissance.core.errors import FormatError
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import RESNET_3_3, BluePrint, block, cbr, conv, gap_fc, seq

from .random_trees import networks, unhurried

MODEL = BluePrint(seq(cbr(4, 3, 1, 1), block(4, RESNET_3_3), gap_fc(10, True)), "tiny")


def text(amp: bool = True) -> str:
    return ArchPlan.from_blueprint(MODEL, (8, 8, 3), amp=amp).to_yaml()


@pytest.mark.parametrize("amp", [True, False])
def test_there_and_back(amp):
    plan = ArchPlan.from_blueprint(MODEL, (8, 8, 3), amp=amp)
    assert ArchPlan.from_yaml(plan.to_yaml()) == plan


@unhurried
@given(networks(), st.booleans())
def test_any_plan_goes_there_and_back(network, amp):
    tree, size = network
    plan = ArchPlan.from_blueprint(tree, size, amp=amp)
    again = ArchPlan.from_yaml(plan.to_yaml())
    assert again == plan
    assert again.weights() == plan.weights()
    assert str(again) == str(plan)


def test_the_document_is_plain_yaml():
    document = yaml.safe_load(text())
    assert list(document) == [
        *("format", "name", "input", "stored_channels", "num_classes", "amp", "fused", "layers"),
    ]
    assert document["input"] == [8, 8, 3]
    first = document["layers"][0]
    assert first["kind"] == "cbr"
    assert first["params"]["eps"] == 1e-5
    assert [part["name"] for part in first["parts"]] == ["conv1", "bn1", "relu1"]


def edited(edit) -> str:
    document = yaml.safe_load(text())
    edit(document)
    return yaml.safe_dump(document, sort_keys=False)


def put(*path, value):
    """An edit that sets the value at a path of the document."""

    def edit(document):
        *inner, last = path
        for key in inner:
            document = document[key]
        document[last] = value

    return edit


def drop(*path):
    """An edit that deletes a path of the document."""

    def edit(document):
        *inner, last = path
        for key in inner:
            document = document[key]
        del document[last]

    return edit


DAMAGED = [
    (put("format", value="2"), "the plan: format is '2', expected 'renaissance arch plan 1'"),
    (drop("format"), "the plan: format is missing"),
    (put("colour", value="red"), "the plan: key is 'colour', expected one of amp, format, fused"),
    (put("input", value=[8, 8]), r"the plan: input is \[8, 8\], expected \[height, width, chan"),
    (put("input", value=[8, 0, 3]), "the plan: input is"),
    (put("stored_channels", value=3), "the plan: stored_channels is 3, expected 4, which follows"),
    (drop("layers", 0, "output"), "layer 'cbr1': output is missing"),
    (put("amp", value=1), "the plan: amp is 1, expected bool"),
    (put("name", value=3), "the plan: name is 3, expected str or NoneType"),
    (put("num_classes", value=11), "the plan ends with Head.num_classes=10., expected a head of"),
    (drop("layers", -1), "the plan ends with None, expected a head of its num_classes"),
    (put("layers", 0, value=[]), r"layer None is \[\], expected a mapping"),
    (drop("layers", 0, "kind"), "layer 'cbr1': kind is missing"),
    (put("layers", 0, "kind", value="warp"), "layer 'cbr1': layer kind is 'warp', expected one of"),
    (put("layers", 0, "params", "out", value=-4), "layer 'cbr1': cbr out is -4, expected an int"),
    (put("layers", 0, "params", "width", value=4), "layer 'cbr1': .* unexpected keyword argument"),
    (drop("layers", 0, "params", "out"), "layer 'cbr1': .* missing 1 required positional argument"),
    (
        put("layers", 0, "parts", 0, "output", value=[8, 8, 5]),
        r"layer 'conv1': output is \[8, 8, 5\], expected \[8, 8, 4\], which follows from its input",
    ),
    (
        put("layers", 0, "params", "out", value=5),
        r"layer 'cbr1': output is \[8, 8, 4\], expected \[8, 8, 5\], which follows from its input",
    ),
    (
        put("layers", 0, "parts", 0, "parts", value=[]),
        "layer 'cbr1': parts is .*, expected primitive layers without parts of their own",
    ),
    (
        put("layers", 0, "parts", 0, "params", "kernel", value=30),
        "the plan contradicts itself: conv1: conv.4, 30, 1, 1. on 1x8x8x3: the output height",
    ),
    (
        drop("layers", 1, "parts", 0),
        "the plan contradicts itself: add2_shortcut_end1 stands alone, expected add2_start before",
    ),
    (
        put("layers", 0, "name", value="gap_fc1"),
        r"the plan has several layers of the names \['gap_fc1'\], expected one each",
    ),
]


@pytest.mark.parametrize("edit, message", DAMAGED, ids=[message[:50] for _, message in DAMAGED])
def test_a_damaged_document_is_refused_with_the_place(edit, message):
    with pytest.raises(FormatError, match=message):
        ArchPlan.from_yaml(edited(edit))


@pytest.mark.parametrize(
    "content, message",
    [
        ("[1, 2", "the plan is not YAML: "),
        ("", "the plan is None, expected a mapping"),
        ("- 1", r"the plan is \[1\], expected a mapping"),
        ("!!python/object:os.system {}", "the plan is not YAML: "),
    ],
)
def test_what_is_no_document_is_refused(content, message):
    with pytest.raises(FormatError, match=message):
        ArchPlan.from_yaml(content)


def test_a_plan_without_a_name_has_none_again():
    plan = ArchPlan.from_blueprint(seq(conv(4, 3), gap_fc(2, False)), (5, 5, 1))
    assert ArchPlan.from_yaml(plan.to_yaml()).name is None
