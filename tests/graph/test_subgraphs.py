"""Which nodes each layer becomes: primitives, patterns under fusion, and layers from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from renaissance.core.types import DType, GraphId, Region, StreamKind, WeightGroup
from renaissance.graph import registry
from renaissance.graph.blueprint import (
    RESNET_3_3,
    RESNET_3_3_DS,
    Layer,
    add2,
    block,
    bn,
    cbr,
    cbrp,
    conv,
    dropout,
    fc,
    flatten,
    gap,
    gap_fc,
    identity,
    maxpool,
    mbconv,
    relu,
    relu6,
    seq,
    silu,
    tanh_act,
)
from renaissance.graph.computation_graph import ComputeNode, Ref
from renaissance.graph.layer import LayerDescriptor, WeightSpec
from renaissance.graph.registry import register_layer_kind
from renaissance.graph.subgraphs import layer_graph, register_layer_graph
from tests.graph.support import compiled, lines

DEEP = GraphId.DEEP_FWD_BWD
MLP = seq(fc(8), relu(), fc(6), silu(), fc(3))


def node(result, graph_id: GraphId, op: str, layer: str) -> ComputeNode:
    (found,) = (n for n in result.graph[graph_id] if n.op == op and n.layer == layer)
    return found


# -- the MLP, node by node ------------------------------------------------------------------------


def test_an_mlp_of_primitives():
    result = compiled(MLP, (1, 1, 4))
    assert lines(result.graph[GraphId.FIRST_LAYER_FWD_A]) == ["fc1: fc_forward", "input: copy"]
    assert lines(result.graph[DEEP]) == [
        "relu1: activation_forward",
        "fc2: fc_forward",
        "silu1: activation_forward",
        "fc3: fc_forward",
        "softmax_cross_entropy1: softmax_cross_entropy_forward_backward",
        "fc3: fc_backward_weight",
        "fc3: fc_backward_data",
        "silu1: activation_backward",
        "fc2: fc_backward_weight",
        "fc2: fc_backward_data",
        "relu1: activation_backward",
    ]
    assert lines(result.graph[GraphId.FIRST_LAYER_BWD_A]) == ["fc1: fc_backward_weight"]


def test_an_mlp_with_activations_in_the_epilogues():
    result = compiled(MLP, (1, 1, 4), amp=True)
    assert lines(result.graph[DEEP]) == [
        "fc2: fc_forward",
        "fc3: fc_forward",
        "softmax_cross_entropy1: softmax_cross_entropy_forward_backward",
        "fc3: fc_backward_weight",
        "fc3: fc_backward_data",
        "fc2: fc_backward_weight",
        "fc2: fc_backward_data",
    ]
    first = result.graph[GraphId.FIRST_LAYER_FWD_A].nodes[0]
    assert first.params["activation"] == "relu"
    assert first.outputs["y"] == Ref(Region.F_FEATURE_FP16, "relu1.y")


def test_the_derivative_is_read_off_the_output_or_where_it_must_the_input():
    result = compiled(MLP, (1, 1, 4), amp=True)
    of_relu = node(result, DEEP, "fc_backward_data", "fc2")
    assert of_relu.params["activation"] == "relu"
    assert of_relu.inputs["y"] == Ref(Region.F_FEATURE_FP16, "relu1.y")
    of_silu = node(result, DEEP, "fc_backward_data", "fc3")
    assert of_silu.params["activation"] == "silu"
    assert of_silu.inputs["z"] == Ref(Region.F_FEATURE_FP16, "fc2.y")
    assert of_silu.outputs["dx"] == Ref(Region.F_GRAD_SLOT_FP16, "fc2.dy")


def test_an_activation_read_twice_keeps_its_own_derivative():
    network = seq(fc(4), relu(), add2(identity(), fc(4)), fc(2))
    result = compiled(network, (1, 1, 4), amp=True)
    assert "activation" not in node(result, DEEP, "fc_backward_data", "fc2").params
    assert "relu1: activation_backward" in lines(result.graph[DEEP])


def test_operands_of_a_fully_connected_layer_under_amp():
    result = compiled(MLP, (1, 1, 4), amp=True)
    forward = node(result, DEEP, "fc_forward", "fc2")
    assert dict(forward.inputs) == {
        "x": Ref(Region.F_FEATURE_FP16, "relu1.y"),
        "w": Ref(Region.A_FC_WEIGHT, "fc2.weight"),
        "bias": Ref(Region.W_FC_BIAS, "fc2.bias"),
    }
    weight = node(result, DEEP, "fc_backward_weight", "fc2")
    assert dict(weight.outputs) == {
        "dw": Ref(Region.G_FC_WEIGHT_FP16, "fc2.weight"),
        "dbias": Ref(Region.G_FC_BIAS, "fc2.bias"),
    }


def test_a_layer_without_bias_has_no_bias_operands():
    result = compiled(seq(fc(4), fc(3, bias=False)), (1, 1, 4))
    assert set(node(result, DEEP, "fc_forward", "fc2").inputs) == {"x", "w"}
    assert set(node(result, DEEP, "fc_backward_weight", "fc2").outputs) == {"dw"}


def test_weight_gradients_run_beside_data_gradients():
    result = compiled(MLP, (1, 1, 4), amp=True)
    graph = result.graph[DEEP]
    for stage in graph.stages:
        if len(stage) == 2:
            assert [n.op for n in stage] == ["fc_backward_weight", "fc_backward_data"]
            assert [n.stream for n in stage] == [StreamKind.COMP_2, StreamKind.COMP_1]
    assert sum(len(stage) == 2 for stage in graph.stages) == 2


def test_the_head_reads_fp32_logits_and_a_copy_of_the_labels():
    result = compiled(MLP, (1, 1, 4), amp=True)
    head = node(result, DEEP, "softmax_cross_entropy_forward_backward", "softmax_cross_entropy1")
    assert head.inputs["logits"] == Ref(Region.F_FEATURE_FP32, "fc3.y")
    assert head.inputs["labels"] == Ref(Region.T_TEMP_INT32, "input.labels")
    assert head.outputs["dlogits"] == Ref(Region.F_GRAD_SLOT_FP16, "fc3.dy")


# -- input slots ----------------------------------------------------------------------------------


def test_only_the_first_layer_touches_the_input_slots():
    network = seq(cbr(4, 3, 1, 1), block(4, RESNET_3_3), gap_fc(3, True))
    for fuse in (False, True):
        result = compiled(network, amp=True, fuse=fuse)
        refs = {ref for n in result.graph[DEEP] for ref in (*n.reads, *n.writes)}
        assert not any(ref.region.name.startswith("I_") for ref in refs)
        for slot in "AB":
            for direction in ("FWD", "BWD"):
                graph = result.graph[GraphId[f"FIRST_LAYER_{direction}_{slot}"]]
                read = {ref.region.name[:3] for n in graph for ref in n.reads}
                assert {name for name in read if name[0] == "I"} == {f"I_{slot}"}


def test_batch_norm_of_a_fused_first_unit_stays_in_the_deep_graph():
    result = compiled(seq(cbr(4, 3, 1, 1), gap(), fc(2)), amp=True)
    assert lines(result.graph[GraphId.FIRST_LAYER_FWD_A])[0] == "conv1: conv_statistics_forward"
    assert lines(result.graph[GraphId.FIRST_LAYER_BWD_A]) == ["conv1: conv_backward_weight"]
    assert lines(result.graph[DEEP])[0] == "bn1: batch_norm_apply"


def test_a_shortcut_from_the_input_reads_a_copy():
    result = compiled(seq(add2(conv(3, 1), conv(3, 3, 1, 1)), gap(), fc(2)))
    first = result.graph[GraphId.FIRST_LAYER_FWD_A].nodes
    copied = Ref(Region.F_FEATURE_FP32, "input.images")
    assert [n.op for n in first] == ["conv_forward", "copy", "copy"]
    assert node(result, DEEP, "conv_forward", "conv2").inputs["x"] == copied
    assert "conv2: conv_backward_data" not in lines(result.graph[DEEP])


def test_layers_before_the_first_weights_belong_to_the_first_graph():
    result = compiled(seq(maxpool(2, 2, 0), conv(4, 1), gap(), fc(2)))
    ops = [n.op for n in result.graph[GraphId.FIRST_LAYER_FWD_A]]
    assert ops == ["max_pool_forward", "conv_forward", "copy"]
    assert set(result.graph[GraphId.FIRST_LAYER_FWD_A].nodes[0].outputs) == {"y"}  # no winners


def test_what_lies_before_a_frozen_layer_gets_no_gradient():
    network = seq(conv(4, 1), bn(), relu(), conv(4, 1), gap(), fc(2))
    result = compiled(network, first_layer_frozen=True)
    assert not len(result.graph[GraphId.FIRST_LAYER_BWD_A])
    outputs = node(result, DEEP, "batch_norm_backward", "bn1").outputs
    assert set(outputs) == {"dgamma", "dbeta", "partial"}


# -- layers that cost nothing ---------------------------------------------------------------------


def test_flatten_and_dropout_of_zero_leave_no_node():
    plain = compiled(seq(conv(4, 3), flatten(), fc(3)))
    assert not any("flatten" in line for line in lines(plain.graph[DEEP]))
    quiet = compiled(seq(fc(4), dropout(0), fc(3)), (1, 1, 4))
    assert quiet.graph == compiled(seq(fc(4), fc(3)), (1, 1, 4)).graph


def test_dropout_is_drawn_from_seed_step_and_layer_and_absent_in_inference():
    result = compiled(seq(fc(4), dropout(0.3), fc(3)), (1, 1, 4))
    drawn = node(result, DEEP, "dropout_forward", "dropout1")
    assert {"seed", "applied_steps", "skipped_steps"} < set(drawn.inputs)
    names = [layer.name for layer in result.plan.primitives()]
    assert drawn.params == {"p": 0.3, "layer_index": names.index("dropout1")}
    assert not any("dropout" in line for line in lines(result.graph[GraphId.INF_MAIN_A]))


def test_an_add_hands_its_gradient_to_both_paths_without_a_copy():
    result = compiled(seq(conv(4, 1), add2(identity(), seq(conv(4, 1), tanh_act())), gap(), fc(2)))
    backward = lines(result.graph[DEEP])
    assert "add2_end1: gradient_sum" not in backward
    total = next(n for n in result.graph[DEEP] if n.op == "gradient_sum")
    assert total.outputs["dx"] == Ref(Region.F_GRAD_SLOT_FP32, "conv1.dy")
    assert total.inputs["a"] == Ref(Region.F_GRAD_SLOT_FP32, "add2_end1.dy")


# -- fused patterns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (cbr(4, 3, 1, 1), ["conv_statistics_forward", "batch_norm_apply"]),
        (cbrp(4, 3, 1, 1, 2, 2, 0), ["conv_statistics_forward", "batch_norm_max_pool_forward"]),
        (
            block(4, RESNET_3_3),
            ["conv_statistics_forward", "batch_norm_apply", "conv_statistics_forward"]
            + ["batch_norm_add_forward"],
        ),
        (
            block(6, RESNET_3_3_DS),
            ["conv_statistics_forward"] * 2
            + ["batch_norm_apply", "conv_statistics_forward", "batch_norm_add_forward"],
        ),
        (
            mbconv(6, 8, 2),
            ["conv_statistics_forward", "batch_norm_apply"]
            + ["depthwise_conv_statistics_forward", "batch_norm_apply"]
            + ["conv_statistics_forward", "batch_norm_apply"],
        ),
        (seq(conv(4, 1), relu(), bn(), relu()), ["conv_forward", "activation_forward"]
            + ["batch_norm_forward"]),
    ],
)  # fmt: skip
def test_forward_operations_of_a_unit(network: Layer, expected: list[str]):
    result = compiled(seq(conv(4, 1), relu(), network, gap_fc(2, True)), amp=True)
    ops = [n.op for n in result.graph[DEEP]]
    assert ops[1 : ops.index("gap_fc_forward")] == expected


def test_a_projection_is_normalised_in_the_pass_of_the_add():
    network = seq(conv(4, 1), relu(), block(6, RESNET_3_3_DS), gap_fc(2, True))
    result = compiled(network, amp=True)
    add = node(result, DEEP, "batch_norm_add_forward", "add2_end1")
    assert add.params == {"activation": "relu"}
    assert {"shortcut_gamma", "shortcut_mean"} < set(add.inputs)
    undo = node(result, DEEP, "batch_norm_add_backward", "add2_end1")
    assert set(undo.outputs) == {
        "dx", "dgamma", "dbeta", "dshortcut", "dshortcut_gamma", "dshortcut_beta", "partial",
    }  # fmt: skip


@pytest.mark.parametrize("kind", [relu, relu6])
def test_the_end_of_a_block_leaves_a_bit_for_its_backward(kind: Callable[[], Layer]):
    network = seq(conv(16, 1), relu(), add2(identity(), seq(conv(16, 1), bn())), kind(), fc(2))
    result = compiled(network, amp=True)
    mask = Ref(Region.S_MASK, "add2_end1.mask")
    add = node(result, DEEP, "batch_norm_add_forward", "add2_end1")
    undo = node(result, DEEP, "batch_norm_add_backward", "add2_end1")
    assert add.outputs["mask"] == undo.inputs["mask"] == mask
    assert "y" not in undo.inputs
    planned = result.memory[0].tensor(mask)
    assert (planned.shape, planned.dtype) == ((4, 8, 8, 2), DType.UINT8)


@pytest.mark.parametrize(
    ("channels", "kind", "amp", "read"),
    [(12, relu, True, "y"), (16, tanh_act, True, "y"), (16, silu, True, "z"),
     (16, relu, False, "y")],
)  # fmt: skip
def test_other_ends_of_a_block_are_read_again(
    channels: int, kind: Callable[[], Layer], amp: bool, read: str
):
    main = seq(conv(channels, 1), bn())
    network = seq(conv(channels, 1), relu(), add2(identity(), main), kind(), fc(2))
    result = compiled(network, amp=amp)
    nodes = [n for n in result.graph[DEEP] if n.layer == "add2_end1" and "mask" in n.outputs]
    assert not nodes
    last = next(n for n in result.graph[DEEP] if n.op.endswith(("add_backward", "n_backward")))
    assert read in last.inputs


def test_a_linear_bottleneck_hands_the_adds_gradient_on():
    network = seq(conv(4, 1), relu(), mbconv(6, 4, 1), gap_fc(2, True))
    undo = node(compiled(network, amp=True), DEEP, "batch_norm_add_backward", "add2_end1")
    assert "dshortcut" not in undo.outputs and "activation" not in undo.params


@pytest.mark.parametrize("second", [block(4, RESNET_3_3), mbconv(6, 4, 1)])
def test_the_gradients_of_two_readers_meet_in_the_backward_pass_of_the_norm_before(second: Layer):
    network = seq(cbr(4, 3, 1, 1), mbconv(6, 4, 1), second, gap_fc(2, True))
    result = compiled(network, amp=True)
    assert not [n for n in result.graph[DEEP] if n.op == "gradient_sum"]
    join = node(result, DEEP, "batch_norm_add_backward", "add2_end1")
    assert {"dy", "addend"} < set(join.inputs)
    assert "dshortcut" in join.outputs, "the shortcut's reader needs the sum in one place"
    last = node(result, DEEP, "batch_norm_add_backward", "add2_end2")
    assert "addend" not in last.inputs


def test_inference_puts_norm_activation_and_shortcut_into_the_convolution():
    network = seq(cbr(4, 3, 1, 1), block(4, RESNET_3_3), gap_fc(2, True))
    result = compiled(network, amp=True, ema=True)
    assert [n.op for n in result.graph[GraphId.INF_MAIN_A]] == [
        "conv_affine_forward",
        "conv_affine_forward",
        "conv_affine_forward",
        "gap_fc_forward",
        "softmax_cross_entropy_forward",
    ]
    last = node(result, GraphId.INF_EMA_B, "conv_affine_forward", "conv3")
    assert last.inputs["w"] == Ref(Region.E_DEEP_CONV_FP16, "conv3.weight")
    assert last.inputs["scale"] == Ref(Region.W_EQ_SCALE, "bn3.scale_ema")
    assert last.inputs["shortcut"] == Ref(Region.F_FEATURE_FP16, "relu1.y_inference")
    assert last.params["activation"] == "relu"


def test_folding_covers_main_and_average_weights():
    network = seq(cbr(4, 3, 1, 1), gap_fc(2, True))
    main, average = compiled(network, ema=True).graph[GraphId.UPDATE_BN_INF_PARAMS]
    assert main.inputs["gamma"] == Ref(Region.W_BN_WEIGHT, "bn1.weight")
    assert average.inputs["gamma"] == Ref(Region.E_BN_WEIGHT, "bn1.weight")
    assert average.inputs["mean"] == main.inputs["mean"] == Ref(Region.B_PREV_MEAN, "bn1.mean")


def test_a_network_may_end_in_a_map():
    result = compiled(seq(conv(4, 3), relu(), conv(3, 1), gap()), amp=True)
    head = node(result, DEEP, "softmax_cross_entropy_forward_backward", "softmax_cross_entropy1")
    assert head.inputs["logits"] == Ref(Region.F_FEATURE_FP32, "gap1.y")


# -- layers from outside --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """One factor a channel."""


def _same(params: Scale, shape):
    return shape


def _factors(layer):
    return (WeightSpec("factor", (layer.out_shape.c,), WeightGroup.BN_WEIGHT),)


def test_a_registered_layer_without_a_sub_graph_is_one_operation_each_way(monkeypatch):
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    register_layer_kind(LayerDescriptor("scale_channels", Scale, _same, weights=_factors))
    network = seq(conv(4, 1), Layer("scale_channels", Scale()), gap(), fc(2))
    result = compiled(network)
    forward = node(result, DEEP, "layer_forward", "scale_channels1")
    assert forward.params["kind"] == "scale_channels"
    assert forward.inputs["factor"] == Ref(Region.W_BN_WEIGHT, "scale_channels1.factor")
    undo = node(result, DEEP, "layer_backward", "scale_channels1")
    assert undo.outputs["dfactor"] == Ref(Region.G_BN_WEIGHT, "scale_channels1.factor")
    result.memory[0].validate()


def test_a_kind_has_one_sub_graph():
    with pytest.raises(ValueError, match="kind is 'fc', expected a kind without a sub-graph"):
        register_layer_graph("fc", layer_graph("relu"))
