"""The memory plan: 68 regions in banks, which of them a configuration keeps, where tensors lie."""

from __future__ import annotations

import pytest

from renaissance.core.errors import PlanError
from renaissance.core.types import REGIONS, Bank, DType, Region, Variant, WeightGroup
from renaissance.graph.blueprint import (
    add2,
    bn,
    cbr,
    conv,
    dropout,
    fc,
    flatten,
    gap,
    gap_fc,
    identity,
    maxpool,
    relu,
    seq,
    tanh_act,
)
from renaissance.graph.computation_graph import Ref, RegionRun
from renaissance.graph.memory_plan import ALIGNMENT, roles
from renaissance.models import by_name, default_input_shape
from tests.graph.support import compiled

CONVNET = seq(
    conv(8, 3, 1, 1), bn(), relu(), maxpool(2, 2, 0), conv(6, 3), dropout(0.5), flatten(), fc(5)
)
MLP = seq(fc(16), relu(), fc(10))

ALWAYS = {
    "R_RESULT", "R_RESULT_ACCUMULATED", "R_PREDICTED_LABEL", "S_SCALAR_FP32", "S_SCALAR_INT32",
    "I_A_LABEL", "I_A_DATA", "I_B_LABEL", "I_B_DATA", "F_FEATURE_FP32",
    "T_TEMP_FP32", "T_TEMP_INT32",
}  # fmt: skip
GROUPS = ("BN_BIAS", "BN_WEIGHT", "FC_BIAS", "FC_WEIGHT", "FIRST_CONV", "DEEP_CONV")
MATRICES = GROUPS[3:]


def of(letter: str, groups=GROUPS, suffix: str = "") -> set[str]:
    return {f"{letter}_{group}{suffix}" for group in groups}


NORMS = {
    "B_PREV_MEAN", "B_PREV_VAR", "B_NEXT_MEAN", "B_NEXT_VAR", "W_EQ_BIAS", "W_EQ_SCALE",
}  # fmt: skip
PLAIN = ALWAYS | NORMS | of("W") | of("G") | {"S_MASK", "T_TEMP_INT8", "F_GRAD_SLOT_FP32"}
HALF = of("A", MATRICES) | of("G", MATRICES, "_FP16") | {"F_FEATURE_FP16", "F_GRAD_SLOT_FP16"}
FROZEN = of("G", ("FIRST_CONV",)) | of("M", ("FIRST_CONV",)) | of("G", ("FIRST_CONV",), "_FP16")


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, PLAIN),
        ({"first_moment": True}, PLAIN | of("M")),
        ({"first_moment": True, "second_moment": True}, PLAIN | of("M") | of("V")),
        ({"first_moment": True, "norms": True}, PLAIN | of("M") | of("N", MATRICES)),
        ({"ema": True}, PLAIN | of("E")),
        ({"amp": True}, PLAIN - {"F_GRAD_SLOT_FP32"} | HALF),
        (
            {"amp": True, "ema": True},
            PLAIN - {"F_GRAD_SLOT_FP32"} | HALF | of("E") | of("E", MATRICES, "_FP16"),
        ),
        ({"first_layer_frozen": True}, PLAIN - FROZEN),
        (
            {"amp": True, "first_moment": True, "first_layer_frozen": True},
            (PLAIN - {"F_GRAD_SLOT_FP32"} | HALF | of("M")) - FROZEN,
        ),
        ({"workspace_limit": 0}, PLAIN - {"T_TEMP_INT8"}),
    ],
    ids=lambda v: "+".join(v) or "plain" if isinstance(v, dict) else "",
)
def test_a_configuration_keeps_exactly_the_regions_it_needs(settings, kept):
    plan = compiled(CONVNET, **settings).memory[0]
    plan.validate()
    assert {span.region.name for span in plan.regions if span.nbytes} == kept


def test_a_network_without_convolutions_and_norms_leaves_their_regions_empty():
    plan = compiled(MLP, (1, 1, 4), amp=True, ema=True, first_moment=True).memory[0]
    full = {span.region.name for span in plan.regions if span.nbytes}
    assert not full & {
        n.name for n in REGIONS if "CONV" in n.name or n.name[:4] in ("B_PR", "B_NE")
    }
    assert not any("BN" in name or "EQ" in name for name in full)


def test_the_68_regions_lie_in_order_end_to_end_inside_their_banks():
    plan = compiled(CONVNET, amp=True, ema=True, first_moment=True).memory[0]
    assert tuple(span.region for span in plan.regions) == REGIONS and len(REGIONS) == 68
    for bank in Bank:
        spans = [span for span in plan.regions if span.bank is bank]
        assert spans[0].offset == 0
        assert all(a.end == b.offset for a, b in zip(spans, spans[1:], strict=False))
        assert spans[-1].end == plan.bank_bytes(bank)
    assert plan.total_bytes == sum(plan.bank_bytes(bank) for bank in Bank)


def test_banks_hold_what_lives_from_step_to_step_scratch_and_input():
    for region in REGIONS:
        letter = region.name[0]
        if letter in "BWEAMVNR" or (letter == "S" and region is not Region.S_MASK):
            assert region.bank is Bank.PERSISTENT
        elif letter == "I":
            assert region.bank is Bank[f"INPUT_{region.name[2]}"]
        else:
            assert region.bank is Bank.SCRATCH


def test_both_input_slots_look_the_same():
    plan = compiled(CONVNET, batch=7, amp=True).memory[0]
    assert plan.bank_bytes(Bank.INPUT_A) == plan.bank_bytes(Bank.INPUT_B)
    for a, b in (("I_A_DATA", "I_B_DATA"), ("I_A_LABEL", "I_B_LABEL")):
        first, second = plan.region(Region[a]), plan.region(Region[b])
        assert (first.offset, first.nbytes) == (second.offset, second.nbytes)


# -- runs of regions: one span, twins in step -----------------------------------------------------

ALL, MATRIX = (
    (WeightGroup.BN_BIAS, WeightGroup.DEEP_CONV),
    (
        WeightGroup.FC_WEIGHT,
        WeightGroup.DEEP_CONV,
    ),
)


@pytest.mark.parametrize("name", ["mlp", "resnet18", "mobilenet_v2"])
def test_runs_that_are_walked_together_hold_equal_elements(name):
    settings = {"amp": True, "ema": True, "first_moment": True, "second_moment": True}
    result = compiled(by_name(name).layer, default_input_shape(name), 2, **settings)
    plan = result.memory[0]
    plan.validate()

    def elements(role: str, groups) -> int:
        run = RegionRun(groups[0].region(role), groups[1].region(role))
        _, nbytes = plan.span(run)
        assert nbytes == sum(plan.region(region).nbytes for region in run.regions)
        return nbytes // (2 if role in ("A", "E16", "G16") else 4)

    assert len({elements(role, ALL) for role in ("W", "E", "G", "M", "V")}) == 1
    assert len({elements(role, MATRIX) for role in ("W", "E", "G", "A", "E16", "G16")}) == 1


def test_communication_buckets_are_spans_of_the_scratch_bank():
    plan = compiled(CONVNET, amp=True).memory[0]
    second = RegionRun(Region.G_BN_BIAS, Region.G_FIRST_CONV)
    first = RegionRun(Region.G_DEEP_CONV, Region.G_DEEP_CONV)
    offset, nbytes = plan.span(second)
    assert second.bank is first.bank is Bank.SCRATCH
    assert plan.span(first) == (offset + nbytes, plan.region(Region.G_DEEP_CONV).nbytes)


def test_one_span_clears_all_gradients():
    plan = compiled(CONVNET, amp=True).memory[0]
    run = RegionRun(Region.G_BN_BIAS, Region.G_DEEP_CONV_FP16)
    gradients = [region for region in REGIONS if region.name.startswith("G_")]
    assert run.regions == tuple(gradients)  # R_RESULT, between them by number, is persistent
    assert plan.span(run)[1] == sum(plan.region(region).nbytes for region in gradients)


def test_every_weight_has_its_twins_at_the_same_element():
    result = compiled(CONVNET, amp=True, ema=True, first_moment=True, second_moment=True)
    plan = result.memory[0]
    for name, spec, _ in result.plan.weights():
        places = set()
        for role in roles(result.options, spec.group):
            tensor = plan.tensor(Ref(spec.group.region(role), name))
            offset = tensor.offset - plan.region(tensor.region).offset
            places.add((offset / tensor.dtype.itemsize, tensor.shape))
            assert tensor.offset % ALIGNMENT == 0
        assert len(places) == 1, name


# -- tensors --------------------------------------------------------------------------------------


def test_types_follow_precision_and_logits_stay_fp32():
    half, full = compiled(CONVNET, amp=True).memory[0], compiled(CONVNET).memory[0]
    assert half.tensor(Ref(Region.F_FEATURE_FP16, "conv2.y")).dtype is DType.FP16
    assert half.tensor(Ref(Region.F_FEATURE_FP32, "fc1.y")).dtype is DType.FP32
    assert half.tensor(Ref(Region.I_A_DATA, "images")).dtype is DType.FP16
    assert half.tensor(Ref(Region.A_FC_WEIGHT, "fc1.weight")).dtype is DType.FP16
    assert half.tensor(Ref(Region.G_BN_BIAS, "bn1.bias")).dtype is DType.FP32
    assert full.tensor(Ref(Region.F_FEATURE_FP32, "conv2.y")).dtype is DType.FP32
    assert full.tensor(Ref(Region.I_A_DATA, "images")).dtype is DType.FP32


@pytest.mark.parametrize(("channels", "stored"), [(1, 4), (3, 4), (4, 4), (5, 8)])
def test_amp_pads_the_first_convolutions_channels_in_input_and_weights(channels, stored):
    network = seq(conv(8, 3), gap(), fc(2))
    plan = compiled(network, (6, 6, channels), 2, amp=True, first_moment=True).memory[0]
    for region in (Region.W_FIRST_CONV, Region.A_FIRST_CONV, Region.G_FIRST_CONV_FP16):
        assert plan.tensor(Ref(region, "conv1.weight")).shape == (8, 3, 3, stored)
    assert plan.tensor(Ref(Region.I_B_DATA, "images")).shape == (2, 6, 6, stored)
    full = compiled(network, (6, 6, channels), 2).memory[0]
    assert full.tensor(Ref(Region.W_FIRST_CONV, "conv1.weight")).shape == (8, 3, 3, channels)


def test_scalars_of_the_step():
    plan = compiled(MLP, (1, 1, 4), lr_table_length=300).memory[0]
    shapes = {t.name: t.shape for t in plan.tensors_in(Region.S_SCALAR_FP32)}
    assert shapes == {
        "lr": (1,), "loss_scale": (1,), "bias_correction1": (1,), "bias_correction2": (1,),
        "lr_table": (300,),
    }  # fmt: skip
    shapes = {t.name: t.shape for t in plan.tensors_in(Region.S_SCALAR_INT32)}
    assert shapes == {
        "applied_steps": (1,), "skipped_steps": (1,), "clean_steps": (1,), "overflow_run": (1,),
        "nan_flag": (1,), "seed": (2,),
    }  # fmt: skip
    for region in (Region.R_RESULT, Region.R_RESULT_ACCUMULATED):
        assert {t.name for t in plan.tensors_in(region)} == {"loss", "top1", "top5", "count"}
    label = plan.tensor(Ref(Region.R_PREDICTED_LABEL, "label"))
    assert (label.shape, label.dtype) == ((4,), DType.INT32)


def test_statistics_masks_winners_and_scratch_are_planned():
    plan = compiled(CONVNET, (8, 8, 3), 4).memory[0]
    assert plan.tensor(Ref(Region.T_TEMP_FP32, "bn1.batch_inverse_std")).shape == (8,)
    assert plan.tensor(Ref(Region.B_NEXT_VAR, "bn1.var")).shape == (8,)
    mask, winners = (
        plan.tensor(Ref(Region.S_MASK, name)) for name in ("dropout1.mask", "maxpool1.argmax")
    )
    assert (mask.shape, mask.dtype) == ((4, 2, 2, 6), DType.UINT8)
    assert (winners.shape, winners.dtype) == ((4, 4, 4, 8), DType.UINT8)


def test_a_window_of_more_than_256_pixels_needs_wider_winners():
    network = seq(conv(2, 1), maxpool(17, 1, 0), gap(), fc(2))
    plan = compiled(network, (20, 20, 1), 1).memory[0]
    assert plan.tensor(Ref(Region.S_MASK, "maxpool1.argmax")).dtype is DType.INT32


def test_convolutions_share_their_workspaces():
    network = seq(cbr(4, 3, 1, 1), cbr(4, 3, 1, 1), cbr(4, 3, 1, 1), gap_fc(2, True))
    plan = compiled(network, workspace_limit=4096).memory[0]
    # a data gradient and a weight gradient run side by side; nothing else does
    assert plan.region(Region.T_TEMP_INT8).nbytes == 4096 + 1024


def test_features_are_reused_where_a_later_one_fits():
    chain = seq(fc(8), *(layer for _ in range(20) for layer in (bn(), tanh_act())), fc(2))
    report = compiled(chain, (1, 1, 8), 64).memory[0].memory_report()
    features = next(s for s in report.regions if s.region is Region.F_FEATURE_FP32)
    assert features.nbytes == features.live_bytes < features.tensor_bytes


@pytest.mark.parametrize("name", ["mlp", "vgg16_bn", "resnet18", "resnet50", "mobilenet_v2"])
@pytest.mark.parametrize("amp", [False, True])
def test_four_gradient_slots_suffice_for_the_networks_of_the_framework(name, amp):
    result = compiled(by_name(name).layer, default_input_shape(name), 8, amp=amp)
    report = result.memory[0].memory_report()
    assert 2 <= report.gradient_slots <= 4
    slots = next(s for s in report.regions if s.region.name.startswith("F_GRAD_SLOT"))
    largest = max(t.slot_bytes for t in result.memory[0].tensors_in(slots.region))
    assert slots.nbytes <= 4 * largest


def test_nested_adds_need_more_gradient_slots():
    body, counts = conv(3, 1), []
    for _ in range(5):
        # the gradient of each add waits for its shortcut until all that is inside has been undone
        body = add2(seq(conv(3, 1), tanh_act()), seq(body, conv(3, 1)))
        network = seq(conv(3, 1), body, gap(), fc(2))
        counts.append(compiled(network).memory[0].memory_report().gradient_slots)
    assert counts == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["vgg16_bn", "resnet18", "resnet50", "mobilenet_v2"])
def test_the_report_lies_between_the_bytes_alive_and_the_sum_of_all_tensors(name):
    result = compiled(by_name(name).layer, default_input_shape(name), 32, amp=True)
    report = result.memory[0].memory_report()
    assert report.live_bytes <= report.live_by_region <= report.planned_bytes
    assert report.planned_bytes < report.tensor_bytes
    assert report.planned_bytes == result.memory[0].total_bytes
    spans = {span.region: span for span in report.regions}
    features, slots = spans[Region.F_FEATURE_FP16], spans[Region.F_GRAD_SLOT_FP16]
    assert features.live_bytes <= features.nbytes <= 1.01 * features.live_bytes
    assert slots.live_bytes <= slots.nbytes <= 1.5 * slots.live_bytes


@pytest.mark.parametrize("name", ["vgg16_bn", "resnet50", "mobilenet_v2"])
def test_large_gradients_lie_where_features_are_dead(name):
    plan = compiled(by_name(name).layer, (224, 224, 3), 256, amp=True).memory[0]
    plan.validate()
    features, slots = plan.region(Region.F_FEATURE_FP16), plan.region(Region.F_GRAD_SLOT_FP16)
    guests = [t for t in plan.tensors_in(features.region) if ".dy" in t.name]
    assert guests and sum(t.slot_bytes for t in guests) > 20 * slots.nbytes
    assert features.nbytes == features.live_bytes, "the region did not grow for them"


def test_offsets_pass_2_to_the_31():
    result = compiled(by_name("resnet50").layer, (224, 224, 3), 256)
    plan = result.memory[0]
    plan.validate()
    assert plan.bank_bytes(Bank.SCRATCH) > 2**34
    assert max(t.offset for t in plan.tensors.values()) > 2**33


# -- look-up and text -----------------------------------------------------------------------------


def test_an_unknown_tensor_is_answered_with_the_ones_there_are():
    plan = compiled(MLP, (1, 1, 4)).memory[0]
    with pytest.raises(
        PlanError, match=r"'fc9.weight', expected one of \['fc1.weight', 'fc2.weight'\]"
    ):
        plan.tensor(Ref(Region.W_FC_WEIGHT, "fc9.weight"))


def test_the_dump_names_every_region_and_tensor():
    plan = compiled(CONVNET, ema=True).memory[0]
    text = plan.dump_layout()
    assert all(f" {span.region.name} " in text for span in plan.regions)
    assert all(f" {tensor.name} " in text for tensor in plan.tensors.values())
    report = str(plan.memory_report())
    assert f"{plan.total_bytes:,}" in report and "above the bytes alive at once" in report


def test_repr_says_what_it_is_for():
    plan = compiled(MLP, (1, 1, 4), val_batch=2).memory[Variant.VAL_BASE]
    assert repr(plan).startswith("MemoryPlan(val_base+val_last, 2x1x1x4, ")


def test_the_same_network_gives_the_same_plan():
    first, second = (compiled(CONVNET, amp=True, ema=True) for _ in range(2))
    assert first.memory[0].layout.offsets == second.memory[0].layout.offsets
    assert first.graph == second.graph


def test_identity_shortcuts_cost_nothing():
    shortcut = seq(conv(4, 1), add2(identity(), conv(4, 1)), gap(), fc(2))
    straight = seq(conv(4, 1), conv(4, 1), gap(), fc(2))
    with_add = compiled(shortcut).memory[0].region(Region.F_FEATURE_FP32)
    without = compiled(straight).memory[0].region(Region.F_FEATURE_FP32)
    assert with_add.live_bytes - without.live_bytes <= 4 * 8 * 8 * 4 * 4
