"""The compiler: options, five phases, six variants, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from renaissance.core.errors import PlanError, ShapeError
from renaissance.core.types import GraphId, Region, Variant
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.blueprint import (
    BluePrint,
    bn,
    cbr,
    conv,
    dropout,
    fc,
    flatten,
    gap,
    relu,
    repeat,
    seq,
)
from renaissance.graph.compiler import Compiler, compile_graph, infer_variant_shapes
from renaissance.graph.computation_graph import RangeNode, Ref, train_step
from renaissance.graph.options import CompileOptions, ShapeId
from renaissance.models import by_name, default_input_shape, names
from tests.graph.support import compiled, options

NETWORK = seq(conv(4, 3, 2, 1), bn(), relu(), gap(), fc(3))
PROGRESSIVE = {
    "train_end": (12, 10),
    "validation": (14, 14),
    "last_train_batch": 5,
    "val_batch": 16,
    "last_val_batch": 3,
}


# -- options --------------------------------------------------------------------------------------


def test_what_is_left_out_takes_the_value_of_the_full_batch():
    o = options((8, 6, 3), 4)
    assert {o.shape_id(variant) for variant in Variant} == {ShapeId(4, 8, 6, 3)}
    assert o.fuse is False and options(amp=True).fuse is True
    assert options(amp=True, fuse=False).fuse is False


def test_the_six_variants():
    o = options((8, 8, 3), 7, **PROGRESSIVE)
    assert [str(o.shape_id(variant)) for variant in Variant] == [
        "7x8x8x3",
        "5x8x8x3",
        "7x12x10x3",
        "5x12x10x3",
        "16x14x14x3",
        "3x14x14x3",
    ]


def test_options_are_frozen_and_hashable():
    o = options()
    assert o == options() and hash(o) == hash(options())
    with pytest.raises(FrozenInstanceError):
        o.batch = 5


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"batch": 0}, ValueError, "batch is 0, expected an integer >= 1"),
        ({"last_train_batch": 9}, ValueError, r"last_train_batch is 9, expected .* \[1, 4\]"),
        ({"val_batch": 2, "last_val_batch": 3}, ValueError, r"last_val_batch is 3, .* \[1, 2\]"),
        ({"train_end": 7}, TypeError, r"train_end is 7, expected a pair \(height, width\)"),
        ({"validation": (0, 4)}, ValueError, "validation height is 0"),
        ({"fuse": True}, ValueError, "fuse is True, expected False without amp"),
        ({"lr_table_length": 0}, ValueError, "lr_table_length is 0"),
        ({"workspace_limit": -1}, ValueError, "workspace_limit is -1"),
    ],
)
def test_wrong_options_are_refused(wrong, kind, message):
    with pytest.raises(kind, match=message):
        options(**wrong)


# -- variants -------------------------------------------------------------------------------------


def test_phase_1_infers_the_shapes_of_every_variant():
    o = options((8, 8, 3), 7, amp=True, **PROGRESSIVE)
    plan = ArchPlan.from_blueprint(NETWORK, o.sample_shape, amp=True)
    shapes = infer_variant_shapes(plan, o)
    assert [s.outputs["conv1"] for s in shapes] == [
        (7, 4, 4, 4),
        (5, 4, 4, 4),
        (7, 6, 5, 4),
        (5, 6, 5, 4),
        (16, 7, 7, 4),
        (3, 7, 7, 4),
    ]
    assert shapes[2].input == (7, 12, 10, 4)  # channels as they lie in memory


def test_slots_are_sized_for_the_largest_variant_and_offsets_are_equal():
    result = compiled(NETWORK, (8, 8, 3), 7, **PROGRESSIVE)
    feature = Ref(Region.F_FEATURE_FP32, "conv1.y")
    tensors = [result.memory[v].tensor(feature) for v in Variant if v.is_training]
    assert len({t.offset for t in tensors}) == len({t.slot_bytes for t in tensors}) == 1
    assert tensors[2].shape == (7, 6, 5, 4)
    assert tensors[0].slot_bytes == -(-7 * 6 * 5 * 4 * 4 // 256) * 256
    images = result.memory[0].tensor(Ref(Region.I_A_DATA, "images"))
    assert images.shape == (7, 8, 8, 3)
    assert images.slot_bytes >= 16 * 14 * 14 * 3 * 4


def test_validation_does_not_enlarge_what_only_training_needs():
    small = compiled(NETWORK, (8, 8, 3), 7)
    large = compiled(NETWORK, (8, 8, 3), 7, validation=(64, 64))
    region = Region.F_GRAD_SLOT_FP32
    assert small.memory[0].region(region).nbytes == large.memory[0].region(region).nbytes


def test_a_training_tensor_is_unknown_to_a_variant_that_only_infers():
    result = compiled(NETWORK, (8, 8, 3), 7, **PROGRESSIVE)
    with pytest.raises(PlanError, match="tensor of F_FEATURE_FP32 in val_base is 'conv1.y'"):
        result.memory[Variant.VAL_BASE].tensor(Ref(Region.F_FEATURE_FP32, "conv1.y"))
    result.memory[Variant.VAL_BASE].tensor(Ref(Region.F_FEATURE_FP32, "conv1.y_inference"))


def test_variants_of_equal_shape_share_one_plan():
    plans = compiled(NETWORK, last_train_batch=3).memory
    assert plans[0] is plans[2] is plans[4] is plans[5]
    assert plans[1] is plans[3] is not plans[0]
    assert plans[0].variants == (0, 2, 4, 5)


def test_a_training_plan_without_a_progressive_resolution_costs_no_more():
    plain = compiled(NETWORK, (8, 8, 3), 7)
    smaller = compiled(NETWORK, (8, 8, 3), 7, train_end=(6, 6), last_train_batch=1)
    assert plain.memory[0].layout.offsets == smaller.memory[0].layout.offsets


# -- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("fuse", [False, True])
def test_every_model_compiles_for_every_configuration(name, fuse):
    shape = default_input_shape(name)
    frozen = name != "mlp"
    result = compiled(
        by_name(name).layer,
        shape,
        4,
        amp=True,
        fuse=fuse,
        first_moment=True,
        norms=True,
        ema=True,
        first_layer_frozen=frozen,
        last_train_batch=2,
    )
    for plan in set(result.memory):
        plan.validate()
    used = {graph.id for graph in result.graph if len(graph)}
    unused = {GraphId.SIMPLE_TASK_GRAPH}
    if frozen:
        unused |= {
            GraphId.FIRST_LAYER_BWD_A,
            GraphId.FIRST_LAYER_BWD_B,
            GraphId.LARS_FIRST_CONV_OPT,
        }
    if name in ("mlp", "lenet"):
        unused |= {GraphId.STATS_COMM, GraphId.UPDATE_STATS, GraphId.UPDATE_BN_INF_PARAMS}
    if name == "mlp":
        unused |= {
            GraphId.DEEP_COMM,
            GraphId.CAST_DEEP_GRAD_FP16_TO_FP32,
            GraphId.LARS_FIRST_CONV_OPT,
            GraphId.LARS_DEEP_CONV_OPT,
        }
    if name == "nin":
        unused |= {GraphId.LARS_FC_OPT, GraphId.CAST_FIRST_GRAD_FP16_TO_FP32}
    assert used == set(GraphId) - unused


def test_the_graph_is_the_same_whatever_the_shapes():
    first = compiled(NETWORK, (8, 8, 3), 4)
    second = compiled(NETWORK, (16, 12, 3), 32, last_train_batch=1)
    assert first.graph == second.graph


@pytest.mark.parametrize(
    ("settings", "graph_id", "ops"),
    [
        ({}, GraphId.OPTIMIZER, ["optimizer_update"]),
        ({"first_layer_frozen": True}, GraphId.OPTIMIZER, ["optimizer_update"] * 2),
        ({"norms": True}, GraphId.LARS_DEEP_CONV_OPT, ["lars_norms", "lars_update"]),
        ({"norms": True}, GraphId.LARS_FC_OPT, ["lars_norms", "lars_update"]),
        ({}, GraphId.LARS_FC_OPT, []),
        ({}, GraphId.CAST_MAIN_FP32_TO_FP16, []),
        ({"amp": True}, GraphId.CAST_MAIN_FP32_TO_FP16, ["cast"]),
        ({"ema": True}, GraphId.EMA_UPDATE, ["ema_update"]),
        ({}, GraphId.EMA_UPDATE, []),
        ({}, GraphId.INF_EMA_A, []),
        ({}, GraphId.NAN_CHECK_AND_GRAD_SCALING, ["check_and_unscale", "advance_counters"]),
        ({}, GraphId.ZERO_GRAD, ["set_step_scalars", "clear"]),
        ({}, GraphId.DEEP_COMM, ["all_reduce_sum"]),
        ({}, GraphId.FIRST_COMM, ["all_reduce_sum"]),
    ],
)
def test_range_graphs_by_configuration(settings, graph_id, ops):
    result = compiled(seq(conv(4, 3), bn(), relu(), conv(4, 1), gap(), fc(3)), **settings)
    assert [node.op for node in result.graph[graph_id]] == ops


def test_the_optimizer_is_one_launch_over_all_weights():
    result = compiled(NETWORK, first_moment=True, second_moment=True)
    (node,) = result.graph[GraphId.OPTIMIZER]
    assert isinstance(node, RangeNode)
    assert {role: str(run) for role, run in node.read.items()} == {
        role.lower(): f"{role}_BN_BIAS..{role}_DEEP_CONV" for role in "WGMV"
    }
    decaying = {Region.W_FC_WEIGHT, Region.W_FIRST_CONV, Region.W_DEEP_CONV}
    assert set(node.params["decay"]) == decaying


def test_a_frozen_convolution_is_left_out_of_every_update():
    result = compiled(NETWORK, amp=True, first_moment=True, first_layer_frozen=True)
    for node in result.graph.nodes(train_step(first_layer_frozen=True)):
        regions = {region for run in node.written_runs for region in run.regions}
        assert not regions & {Region.W_FIRST_CONV, Region.M_FIRST_CONV}


def test_every_order_of_the_step_is_the_frozen_or_the_full_one():
    assert GraphId.FIRST_LAYER_BWD_A in compiled(NETWORK).train_order
    frozen = compiled(NETWORK, first_layer_frozen=True)
    assert GraphId.FIRST_LAYER_BWD_A not in frozen.train_order


# -- refusals -------------------------------------------------------------------------------------


def test_a_weight_that_would_change_with_the_resolution_is_refused():
    network = seq(conv(4, 3), flatten(), fc(3))
    with pytest.raises(
        ShapeError, match=r"fc1.weight would have shape \(3, 64\).* expected \(3, 144\)"
    ):
        compiled(network, validation=(6, 6))


def test_a_resolution_a_layer_cannot_take_is_refused_by_name():
    with pytest.raises(ShapeError, match="conv2"):
        compiled(seq(conv(4, 3), conv(4, 5), gap(), fc(2)), train_end=(5, 5))


def test_a_network_without_weights_is_refused():
    with pytest.raises(PlanError, match="expected a layer with weights to train"):
        compiled(seq(relu(), gap()))


@pytest.mark.parametrize("first", [fc(4), bn()])
def test_only_a_convolution_can_be_frozen(first):
    with pytest.raises(
        PlanError, match="first_layer_frozen with first layer .* a convolution first"
    ):
        compiled(seq(first, fc(3)), (1, 1, 4), first_layer_frozen=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"amp": True}, "amp of the options is True, expected the architecture's, False"),
        ({"train_begin": (9, 9)}, "input shape of the options"),
    ],
)
def test_options_that_contradict_the_architecture_are_refused(settings, message):
    plan = ArchPlan.from_blueprint(NETWORK, (8, 8, 3))
    merged = {"input_channels": 3, "batch": 2, "train_begin": (8, 8), **settings}
    with pytest.raises(PlanError, match=message):
        Compiler(plan, CompileOptions(**merged))


def test_the_number_of_classes_is_handed_on():
    with pytest.raises(ValueError, match="num_classes|classes"):
        compile_graph(BluePrint(NETWORK), options(), num_classes=0)


# -- size and independence ------------------------------------------------------------------------


def test_a_thousand_layers_compile():
    deep = seq(fc(4), repeat(seq(fc(4), relu(), dropout(0.1)), 333), fc(2))
    result = compiled(deep, (1, 1, 4), amp=True)
    result.memory[0].validate()
    assert len(result.graph[GraphId.DEEP_FWD_BWD]) > 1500


def test_it_needs_no_jax():
    program = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = None
from renaissance.graph.compiler import compile_graph
from renaissance.graph.options import CompileOptions
from renaissance.models import by_name
o = CompileOptions(input_channels=1, batch=8, train_begin=(28, 28), amp=True, ema=True)
c = compile_graph(by_name("mlp"), o)
c.memory[0].validate()
print(c.memory[0].memory_report())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "gradient" not in run.stderr and "total" in run.stdout


def test_merged_layers_become_the_patterns_they_are_made_of():
    result = compiled(seq(cbr(4, 3, 1, 1), gap(), fc(2)), amp=True)
    ops = [node.op for node in result.graph[GraphId.FIRST_LAYER_FWD_A]]
    assert ops[0] == "conv_statistics_forward"
