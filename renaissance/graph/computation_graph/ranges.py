"""The RANGE nodes: what happens to whole regions, whatever the network.

A node is left out where the configuration leaves its regions empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from renaissance.core.types import GraphId, Region, StreamKind, WeightGroup
from renaissance.graph.computation_graph.node import ComputeNode, Node, RangeNode
from renaissance.graph.computation_graph.operands import Operands, Ref, RegionRun
from renaissance.graph.options import CompileOptions

IsEmpty = Callable[[Region], bool]

NAN_FLAG = Ref(Region.S_SCALAR_INT32, "nan_flag")
_COUNTERS = ("applied_steps", "skipped_steps", "clean_steps", "overflow_run")
_ACCUMULATED = RegionRun(Region.R_RESULT_ACCUMULATED, Region.R_RESULT_ACCUMULATED)


def _float_scalar(name: str) -> Ref:
    return Ref(Region.S_SCALAR_FP32, name)


def _counter(name: str) -> Ref:
    return Ref(Region.S_SCALAR_INT32, name)


def _run(role: str, first: WeightGroup, last: WeightGroup) -> RegionRun:
    return RegionRun(first.region(role), last.region(role))


def range_node(
    op: str,
    read: Mapping[str, RegionRun | None] | None = None,
    written: Mapping[str, RegionRun | None] | None = None,
    inputs: Mapping[str, Ref | None] | None = None,
    outputs: Mapping[str, Ref | None] | None = None,
    stream: StreamKind = StreamKind.COMP_1,
    **params: Any,
) -> RangeNode:
    """A RANGE node; operands that are None are left out."""
    return RangeNode(
        op,
        Operands(read),
        Operands(written),
        Operands(inputs),
        Operands(outputs),
        params,
        stream,
    )


def range_graphs(options: CompileOptions, is_empty: IsEmpty) -> dict[GraphId, list[Node]]:
    """The nodes of every sub-graph that works on whole regions.

    Args:
        options: Which regions the configuration keeps.
        is_empty: Whether a region holds nothing for this network.
    """
    bn, matrix = WeightGroup.BN_BIAS, WeightGroup.FC_WEIGHT
    first, deep = WeightGroup.FIRST_CONV, WeightGroup.DEEP_CONV
    statistics = RegionRun(Region.B_NEXT_MEAN, Region.B_NEXT_VAR)
    graphs: dict[GraphId, list[Node]] = {
        GraphId.TRANSFER_A: [_transfer(Region.I_A_LABEL, Region.I_A_DATA)],
        GraphId.TRANSFER_B: [_transfer(Region.I_B_LABEL, Region.I_B_DATA)],
        GraphId.ZERO_GRAD: [_step_scalars(), _clear_gradients(options)],
        GraphId.DEEP_COMM: [_all_reduce(_run("G", deep, deep))],
        GraphId.FIRST_COMM: [_all_reduce(_run("G", bn, first))],
        GraphId.NAN_CHECK_AND_GRAD_SCALING: [_check_and_unscale(), _advance_counters()],
        GraphId.STATS_COMM: [_all_reduce(statistics, "mean", StreamKind.UPDATE)],
        GraphId.UPDATE_STATS: [_update_statistics(statistics)],
        GraphId.OPTIMIZER: _optimizer(options, is_empty),
        GraphId.ACCUM_METRICS: [_accumulate(NAN_FLAG)],
        GraphId.ACCUM_METRICS_TRAIN_LAST: [_accumulate(NAN_FLAG)],
        GraphId.ACCUM_METRICS_VAL_LAST: [_accumulate(None)],
        GraphId.VAL_RESULT_COMM: [_all_reduce(_ACCUMULATED)],
        GraphId.CLEAR_METRICS: [range_node("clear", written={"target": _ACCUMULATED})],
    }
    if options.amp:
        graphs[GraphId.CAST_DEEP_GRAD_FP16_TO_FP32] = [_cast("G16", "G", deep, deep)]
        graphs[GraphId.CAST_FIRST_GRAD_FP16_TO_FP32] = [_cast("G16", "G", matrix, first)]
        graphs[GraphId.CAST_MAIN_FP32_TO_FP16] = [_cast("W", "A", matrix, deep)]
    if options.ema:
        graphs[GraphId.EMA_UPDATE] = [_ema(bn, deep)]
        if options.amp:
            graphs[GraphId.CAST_EMA_FP32_TO_FP16] = [_cast("E", "E16", matrix, deep)]
    if options.norms:
        graphs[GraphId.LARS_FC_OPT] = _lars(options, matrix)
        graphs[GraphId.LARS_DEEP_CONV_OPT] = _lars(options, deep)
        if not options.first_layer_frozen:
            graphs[GraphId.LARS_FIRST_CONV_OPT] = _lars(options, first)
    return {i: [n for n in nodes if _has_work(n, is_empty)] for i, nodes in graphs.items()}


def _has_work(node: Node, is_empty: IsEmpty) -> bool:
    runs = (*node.read_runs, *node.written_runs)
    return not runs or not all(is_empty(region) for run in runs for region in run.regions)


# -- before the step ------------------------------------------------------------------------------


def _transfer(first: Region, last: Region) -> Node:
    run = RegionRun(first, last)
    return range_node("transfer", written={"target": run}, stream=StreamKind.TRANS)


def _step_scalars() -> Node:
    """lr = lr_table[applied_steps], bias corrections for t = applied_steps + 1, NaN flag down."""
    names = ("lr", "bias_correction1", "bias_correction2")
    return ComputeNode(
        "set_step_scalars",
        Operands(
            {"lr_table": _float_scalar("lr_table"), "applied_steps": _counter("applied_steps")}
        ),
        Operands({**{n: _float_scalar(n) for n in names}, "nan_flag": NAN_FLAG}),
    )


def _clear_gradients(options: CompileOptions) -> Node:
    last = Region.G_DEEP_CONV_FP16 if options.amp else Region.G_DEEP_CONV
    return range_node("clear", written={"target": RegionRun(Region.G_BN_BIAS, last)})


# -- gradients ------------------------------------------------------------------------------------


def _cast(source: str, target: str, first: WeightGroup, last: WeightGroup) -> Node:
    runs = _run(source, first, last), _run(target, first, last)
    return range_node("cast", {"source": runs[0]}, {"target": runs[1]})


def _all_reduce(run: RegionRun, kind: str = "sum", stream: StreamKind = StreamKind.COMP_1) -> Node:
    return range_node(f"all_reduce_{kind}", {"target": run}, {"target": run}, stream=stream)


def _check_and_unscale() -> Node:
    """Flag anything not finite, divide by the loss scale, clip."""
    run = _run("G", WeightGroup.BN_BIAS, WeightGroup.DEEP_CONV)
    return range_node(
        "check_and_unscale",
        {"target": run},
        {"target": run},
        {"loss_scale": _float_scalar("loss_scale"), "nan_flag": NAN_FLAG},
        {"nan_flag": NAN_FLAG, "partial": Ref(Region.T_TEMP_FP32, "gradients.partial")},
    )


def _advance_counters() -> Node:
    """Count the step as applied or skipped and move the loss scale.

    What follows reads only the scalars that were set at the step's begin, and the flag.
    """
    scale = {"loss_scale": _float_scalar("loss_scale")}
    counters = {name: _counter(name) for name in _COUNTERS}
    return ComputeNode(
        "advance_counters",
        Operands({"nan_flag": NAN_FLAG, **scale, **counters}),
        Operands({**scale, **counters}),
    )


# -- updates: nothing happens while the NaN flag is up --------------------------------------------


def _update_statistics(source: RegionRun) -> Node:
    target = RegionRun(Region.B_PREV_MEAN, Region.B_PREV_VAR)
    return range_node(
        "update_statistics",
        {"source": source},
        {"target": target},
        {"nan_flag": NAN_FLAG},
        stream=StreamKind.UPDATE,
    )


def _optimizer(options: CompileOptions, is_empty: IsEmpty) -> list[Node]:
    """One launch over all groups; two when a frozen first convolution lies between them.

    With layer-wise rates only biases and batch norms are left here; the rest has its own graphs.
    """
    bn, bias, fc = WeightGroup.BN_BIAS, WeightGroup.FC_BIAS, WeightGroup.FC_WEIGHT
    deep = WeightGroup.DEEP_CONV
    if options.norms:
        return [_update(options, bn, bias)]
    if options.first_layer_frozen:
        return [_update(options, bn, fc), _update(options, deep, deep)]
    return [_update(options, bn, deep)]


def _update(options: CompileOptions, first: WeightGroup, last: WeightGroup) -> Node:
    w, g = _run("W", first, last), _run("G", first, last)
    m = _run("M", first, last) if options.first_moment else None
    v = _run("V", first, last) if options.second_moment else None
    names = ("lr", "bias_correction1", "bias_correction2")
    scalars = {name: _float_scalar(name) for name in names}
    return range_node(
        "optimizer_update",
        {"w": w, "g": g, "m": m, "v": v},
        {"w": w, "m": m, "v": v},
        {**scalars, "nan_flag": NAN_FLAG},
        stream=StreamKind.UPDATE,
        decay=tuple(r for r in w.regions if r.name in _DECAYING),
    )


_DECAYING = frozenset(group.region("W").name for group in WeightGroup if group.decays)


def _lars(options: CompileOptions, group: WeightGroup) -> list[Node]:
    w, g, n = (_run(role, group, group) for role in "WGN")
    m = _run("M", group, group) if options.first_moment else None
    partial = Ref(Region.T_TEMP_FP32, f"{group.value.lower()}.norm_partial")
    flag = {"nan_flag": NAN_FLAG}
    lr = {"lr": _float_scalar("lr")}
    stream = StreamKind.UPDATE
    return [
        range_node("lars_norms", {"w": w, "g": g}, {"n": n}, flag, {"partial": partial}, stream),
        range_node(
            "lars_update",
            {"w": w, "g": g, "m": m, "n": n},
            {"w": w, "m": m},
            flag | lr,
            None,
            stream,
        ),
    ]


def _ema(first: WeightGroup, last: WeightGroup) -> Node:
    source, target = _run("W", first, last), _run("E", first, last)
    return range_node(
        "ema_update",
        {"source": source, "target": target},
        {"target": target},
        {"nan_flag": NAN_FLAG},
        stream=StreamKind.UPDATE,
    )


def _accumulate(flag: Ref | None) -> Node:
    source = RegionRun(Region.R_RESULT, Region.R_RESULT)
    return range_node(
        "accumulate",
        {"source": source, "target": _ACCUMULATED},
        {"target": _ACCUMULATED},
        {"nan_flag": flag},
    )


def scratch_of(graphs: Iterable[Iterable[Node]]) -> list[Ref]:
    """The partial sums that RANGE nodes ask for."""
    return [
        ref
        for nodes in graphs
        for node in nodes
        if isinstance(node, RangeNode)
        for ref in node.writes
        if ref.region is Region.T_TEMP_FP32
    ]
