"""Operands, nodes, vocabulary, and what is derived from reads and writes."""

from __future__ import annotations

import pytest

from renaissance.core.errors import PlanError
from renaissance.core.types import Bank, GraphId, Region, StreamKind
from renaissance.graph.computation_graph import (
    BESIDE,
    ONLY_IF_FINITE,
    OPERATIONS,
    TRAIN_STEP,
    ComputationGraph,
    ComputeNode,
    Operands,
    RangeNode,
    Ref,
    RegionRun,
    SubGraph,
    holding,
    single_writer,
    train_step,
    validation_step,
)
from renaissance.graph.computation_graph.dependencies import check_no_cycle, check_reads


def feature(name: str) -> Ref:
    return Ref(Region.F_FEATURE_FP32, name)


def copy(source: str, target: str, stream: StreamKind = StreamKind.COMP_1) -> ComputeNode:
    x, y = Operands({"x": feature(source)}), Operands({"y": feature(target)})
    return ComputeNode("copy", x, y, stream=stream, layer=target)


def clear(first: Region, last: Region) -> RangeNode:
    return RangeNode("clear", written=Operands({"target": RegionRun(first, last)}))


# -- operands -------------------------------------------------------------------------------------


def test_a_run_names_all_regions_between_its_ends_that_lie_in_its_bank():
    run = RegionRun(Region.G_DEEP_CONV, Region.G_FIRST_CONV_FP16)
    names = [region.name for region in run.regions]
    assert names == ["G_DEEP_CONV", "G_FC_WEIGHT_FP16", "G_FIRST_CONV_FP16"]
    assert run.bank is Bank.SCRATCH
    assert str(run) == "G_DEEP_CONV..G_FIRST_CONV_FP16"
    assert str(RegionRun(Region.S_MASK, Region.S_MASK)) == "S_MASK"


@pytest.mark.parametrize(
    ("first", "last"),
    [(Region.W_FC_WEIGHT, Region.G_FC_WEIGHT), (Region.W_DEEP_CONV, Region.W_FC_WEIGHT)],
)
def test_a_run_across_banks_or_backwards_is_refused_at_once(first, last):
    with pytest.raises(PlanError, match=f"{first.name}..{last.name}.* one bank, from low to high"):
        clear(first, last)


def test_operands_keep_order_leave_out_none_and_compare_by_value():
    operands = Operands({"x": feature("a"), "bias": None, "w": feature("b")})
    assert list(operands) == ["x", "w"] and operands["w"] == feature("b")
    assert operands.all == (feature("a"), feature("b"))
    again = Operands({"x": feature("a"), "w": feature("b")})
    assert operands == again and hash(operands) == hash(again)
    assert operands != Operands({"x": feature("a")})
    assert repr(operands) == "x=F_FEATURE_FP32/a, w=F_FEATURE_FP32/b"


# -- vocabulary -----------------------------------------------------------------------------------


def test_operation_names_follow_one_grammar():
    for name, operation in OPERATIONS.items():
        assert name == operation.name == name.lower() and name.isidentifier()
        roles = operation.reads | operation.may_read | operation.writes | operation.may_write
        assert all(role == role.lower() and role.isidentifier() for role in roles)
        if "_backward" in name and "forward" not in name:
            assert {"dy"} <= operation.reads


@pytest.mark.parametrize(
    ("op", "reads", "writes", "message"),
    [
        ("convolve", {}, {}, "operation of fc1 is 'convolve', expected one of"),
        ("fc_forward", {"x": feature("x")}, {"y": feature("y")}, r"reads is \['x'\].*also \['w'\]"),
        ("copy", {"x": feature("x")}, {}, r"writes is \[\], expected also \['y'\]"),
        (
            "copy",
            {"x": feature("x"), "w": feature("w")},
            {"y": feature("y")},
            r"copy of fc1 reads is \['w', 'x'\], expected roles among \['x'\]",
        ),
    ],
)
def test_a_node_the_vocabulary_does_not_know_is_refused(op, reads, writes, message):
    with pytest.raises(PlanError, match=message):
        ComputeNode(op, Operands(reads), Operands(writes), layer="fc1")


def test_layers_from_outside_may_bring_roles_of_their_own():
    operands = Operands({"x": feature("x"), "curve": feature("curve")})
    node = ComputeNode("layer_forward", operands, Operands({"y": feature("y")}))
    assert node.reads == (feature("x"), feature("curve"))


def test_nodes_print_what_they_do():
    assert str(copy("a", "b")) == "copy(x=F_FEATURE_FP32/a) -> y=F_FEATURE_FP32/b"
    assert (
        str(clear(Region.G_BN_BIAS, Region.G_DEEP_CONV))
        == "clear() -> target=G_BN_BIAS..G_DEEP_CONV"
    )


def test_the_same_operation_on_other_tensors():
    node = copy("a", "b").map_refs(lambda ref: Ref(ref.region, ref.name.upper()))
    assert node.reads == (feature("A"),) and node.writes == (feature("B"),)
    assert node.layer == "b"


# -- dependencies ---------------------------------------------------------------------------------


def test_a_node_waits_for_the_writers_of_what_it_reads():
    graph = SubGraph(GraphId.DEEP_FWD_BWD, (copy("a", "b"), copy("a", "c"), copy("b", "d")))
    assert graph.dependencies == ((), (), (0,))


def test_a_node_waits_for_readers_and_the_writer_of_what_it_overwrites():
    graph = SubGraph(GraphId.DEEP_FWD_BWD, (copy("a", "b"), copy("b", "c"), copy("x", "b")))
    assert graph.dependencies[2] == (0, 1)


def test_a_run_overlaps_every_tensor_of_its_regions():
    span = clear(Region.F_FEATURE_FP32, Region.F_FEATURE_FP32)
    graph = SubGraph(GraphId.DEEP_FWD_BWD, (copy("a", "b"), span, copy("b", "c")))
    assert graph.dependencies == ((), (0,), (1,))


def test_a_circle_is_found():
    with pytest.raises(PlanError, match=r"nodes \[1, 2\] wait for each other"):
        check_no_cycle(((), (2,), (1,), (0,)))
    check_no_cycle(((), (0,), (0, 1)))


def test_independent_nodes_on_different_streams_share_a_stage():
    side = StreamKind.COMP_2
    nodes = (copy("a", "b", side), copy("a", "c"), copy("c", "d"), copy("b", "e", side))
    graph = SubGraph(GraphId.DEEP_FWD_BWD, nodes)
    assert graph.stage_of == (0, 0, 1, 1)
    assert graph.stages == (nodes[:2], nodes[2:])


def test_dependent_nodes_and_nodes_of_one_stream_do_not():
    side = StreamKind.COMP_2
    assert SubGraph(GraphId.DEEP_FWD_BWD, (copy("a", "b"), copy("b", "c", side))).stage_of == (0, 1)
    assert SubGraph(GraphId.DEEP_FWD_BWD, (copy("a", "b"), copy("a", "c"))).stage_of == (0, 1)


def test_scratch_is_written_before_it_is_read():
    check_reads([clear(Region.F_FEATURE_FP32, Region.F_FEATURE_FP32), copy("a", "b")])
    with pytest.raises(PlanError, match="copy of b reads F_FEATURE_FP32/a, expected something to"):
        check_reads([copy("a", "b")])


def test_what_lives_from_step_to_step_needs_no_writer():
    w = Ref(Region.W_FC_WEIGHT, "fc1.weight")
    node = ComputeNode("copy", Operands({"x": w}), Operands({"y": feature("y")}))
    check_reads([node])


def test_a_feature_has_one_writer():
    with pytest.raises(
        PlanError, match="writer of F_FEATURE_FP32/b is 'copy', expected one writer"
    ):
        single_writer([copy("a", "b"), copy("c", "b")])


def test_validate_checks_every_order():
    graph = ComputationGraph({GraphId.DEEP_FWD_BWD: [copy("a", "b")]})
    graph.validate([GraphId.ZERO_GRAD])
    with pytest.raises(PlanError, match="reads F_FEATURE_FP32/a"):
        graph.validate([GraphId.ZERO_GRAD], [GraphId.DEEP_FWD_BWD])


def test_the_graph_holds_33_subgraphs_and_is_compared_by_value():
    first, second = (ComputationGraph({GraphId.ZERO_GRAD: [copy("a", "b")]}) for _ in range(2))
    assert len(first) == 33 and [sub.id for sub in first] == list(GraphId)
    assert first == second and hash(first) == hash(second)
    assert first != ComputationGraph({})
    assert len(first[GraphId.SIMPLE_TASK_GRAPH]) == 0
    assert "5 ZERO_GRAD: 1 nodes" in str(first)


def test_banks_touched():
    nodes = (copy("a", "b"), clear(Region.R_RESULT_ACCUMULATED, Region.R_RESULT_ACCUMULATED))
    assert SubGraph(GraphId.ZERO_GRAD, nodes).banks == (Bank.PERSISTENT, Bank.SCRATCH)


# -- the order of a step --------------------------------------------------------------------------


def test_the_train_step_is_the_contracts_order():
    assert [graph_id.name for graph_id in TRAIN_STEP] == [
        "ZERO_GRAD",
        "FIRST_LAYER_FWD_A",
        "TRANSFER_B",
        "DEEP_FWD_BWD",
        "FIRST_LAYER_BWD_A",
        "CAST_DEEP_GRAD_FP16_TO_FP32",
        "DEEP_COMM",
        "CAST_FIRST_GRAD_FP16_TO_FP32",
        "FIRST_COMM",
        "NAN_CHECK_AND_GRAD_SCALING",
        "STATS_COMM",
        "UPDATE_STATS",
        "OPTIMIZER",
        "LARS_FC_OPT",
        "LARS_FIRST_CONV_OPT",
        "LARS_DEEP_CONV_OPT",
        "EMA_UPDATE",
        "CAST_MAIN_FP32_TO_FP16",
        "ACCUM_METRICS",
    ]
    assert BESIDE[GraphId.TRANSFER_B] is GraphId.DEEP_FWD_BWD


def test_slot_b_swaps_all_four_halves():
    swapped = [b for a, b in zip(TRAIN_STEP, train_step("B"), strict=True) if a is not b]
    assert [graph_id.name for graph_id in swapped] == [
        "FIRST_LAYER_FWD_B",
        "TRANSFER_A",
        "FIRST_LAYER_BWD_B",
    ]
    assert holding("B", train_step("B")) == TRAIN_STEP


def test_a_frozen_first_layer_has_no_backward():
    for slot in ("A", "B"):
        missing = set(train_step(slot)) - set(train_step(slot, first_layer_frozen=True))
        assert {graph_id.name for graph_id in missing} == {f"FIRST_LAYER_BWD_{slot}"}


def test_validation_runs_main_or_ema_weights_on_either_slot():
    for slot, other in ("AB", "BA"):
        for ema, weights in ((False, "MAIN"), (True, "EMA")):
            names = [graph_id.name for graph_id in validation_step(slot, ema=ema)]
            assert names[:2] == [f"TRANSFER_{other}", f"INF_{weights}_{slot}"]


def test_everything_between_the_nan_check_and_the_casts_heeds_the_flag():
    begin = TRAIN_STEP.index(GraphId.UPDATE_STATS)
    end = TRAIN_STEP.index(GraphId.CAST_MAIN_FP32_TO_FP16)
    assert set(TRAIN_STEP[begin:end]) == ONLY_IF_FINITE - {GraphId.ACCUM_METRICS}
