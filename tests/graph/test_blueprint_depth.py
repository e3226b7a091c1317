"""Trees of any depth, and trees that share sub-trees."""

from __future__ import annotations

import copy
import pickle
import re
import sys

import pytest

from renaissance.core.errors import ShapeError
from renaissance.core.types import Shape
from renaissance.graph.arch_plan import ArchPlan, expand_tree
from renaissance.graph.blueprint import BluePrint, Layer, add2, fc, identity, relu, repeat, seq

DEPTH = 10_000


def nested_seq(depth: int, core: Layer) -> Layer:
    for _ in range(depth):
        core = seq(core)
    return core


def nested_add(depth: int, core: Layer) -> Layer:
    for _ in range(depth):
        core = add2(identity(), core)
    return core


def nested_repeat(depth: int, core: Layer) -> Layer:
    for _ in range(depth):
        core = repeat(core, 1)
    return core


NESTS = (nested_seq, nested_add, nested_repeat)


@pytest.mark.parametrize("nest", NESTS)
def test_ten_thousand_nested_layers_are_values_like_any_other(nest):
    assert DEPTH > 5 * sys.getrecursionlimit()
    tree, same, other = nest(DEPTH, relu()), nest(DEPTH, relu()), nest(DEPTH, fc(3))
    assert tree == same
    assert hash(tree) == hash(same)
    assert tree != other
    assert tree != nest(DEPTH - 1, relu())
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert copy.deepcopy(tree) is tree


@pytest.mark.parametrize("nest", NESTS)
def test_a_very_deep_tree_prints_abbreviated(nest):
    text = repr(BluePrint(nest(DEPTH, relu())))
    assert text.count("...") == 1
    assert len(text) < 3_000
    assert text.count("(") == text.count(")")


@pytest.mark.parametrize("nest", NESTS)
def test_repr_evaluates_back_to_a_good_depth(nest):
    import renaissance.graph.blueprint as language

    tree = nest(80, relu())
    assert eval(repr(tree), vars(language)) == tree


def test_an_abbreviated_repr_does_not_evaluate_to_something_else():
    import renaissance.graph.blueprint as language

    with pytest.raises(TypeError, match="seq argument 1 is Ellipsis, expected a Layer"):
        eval(repr(nested_seq(DEPTH, relu())), vars(language))


def test_ten_thousand_nested_layers_expand():
    flat = expand_tree(nested_seq(DEPTH, relu()), Shape(1, 1, 1, 4))
    assert [(layer.kind, layer.source_id) for layer in flat] == [("relu", DEPTH)]
    flat = expand_tree(nested_repeat(DEPTH, relu()), Shape(1, 1, 1, 4))
    assert [layer.kind for layer in flat] == ["relu"]


def test_ten_thousand_nested_adds_become_a_plan():
    plan = ArchPlan.from_blueprint(nested_add(DEPTH, fc(4)), (1, 1, 4))
    kinds = [layer.kind for layer in plan.layers]
    assert kinds.count("add2_start") == kinds.count("add2_end") == DEPTH
    assert plan.parameter_count == 20
    assert len(str(plan).splitlines()) == len(kinds) + 6


def test_a_long_sequence_becomes_a_plan_and_a_document():
    plan = ArchPlan.from_blueprint(seq(*[relu()] * 2_000), (1, 1, 4))
    assert len(plan.layers) == 2_001
    assert ArchPlan.from_yaml(plan.to_yaml()) == plan


def doubled(times: int) -> Layer:
    """A tree of 2**times layers in as many nodes as doublings."""
    tree = relu()
    for _ in range(times):
        tree = seq(tree, tree)
    return tree


def test_shared_subtrees_are_not_visited_again_and_again():
    tree = doubled(DEPTH)
    assert tree == doubled(DEPTH)
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert len(repr(tree)) < 100_000


@pytest.mark.parametrize("tree", [doubled(40), doubled(DEPTH), repeat(relu(), 10**12)])
def test_more_layers_than_memory_holds_are_refused_before_the_walk(tree):
    message = re.escape(f"the number of layers is {tree.leaves}, expected at most 1000000")
    with pytest.raises(ValueError, match=message):
        ArchPlan.from_blueprint(tree, (1, 1, 4))


def test_an_error_deep_inside_names_the_layer():
    tree = nested_add(DEPTH, seq(fc(5)))
    with pytest.raises(ShapeError, match=f"^add2_end{DEPTH}: the shortcut gives 1x1x1x4"):
        ArchPlan.from_blueprint(tree, (1, 1, 4))
