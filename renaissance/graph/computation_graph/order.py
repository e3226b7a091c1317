"""The order of a step, as data: what runs after what, beside what, and under which condition.

Slot A or B of the input's double buffer holds the batch at hand; the other one receives the next.
After each step the two swap roles, so the same step exists twice, once per slot.
"""

from __future__ import annotations

from typing import Literal

from renaissance.core.types import GraphId

Slot = Literal["A", "B"]

TRAIN_STEP: tuple[GraphId, ...] = (
    GraphId.ZERO_GRAD,  # begins with the step's scalars: learning rate, bias corrections
    GraphId.FIRST_LAYER_FWD_A,
    GraphId.TRANSFER_B,  # of the next batch, beside what follows
    GraphId.DEEP_FWD_BWD,
    GraphId.FIRST_LAYER_BWD_A,
    GraphId.CAST_DEEP_GRAD_FP16_TO_FP32,
    GraphId.DEEP_COMM,
    GraphId.CAST_FIRST_GRAD_FP16_TO_FP32,
    GraphId.FIRST_COMM,
    GraphId.NAN_CHECK_AND_GRAD_SCALING,
    GraphId.STATS_COMM,
    GraphId.UPDATE_STATS,
    GraphId.OPTIMIZER,
    GraphId.LARS_FC_OPT,
    GraphId.LARS_FIRST_CONV_OPT,
    GraphId.LARS_DEEP_CONV_OPT,
    GraphId.EMA_UPDATE,
    GraphId.CAST_MAIN_FP32_TO_FP16,
    GraphId.ACCUM_METRICS,
)
"""The train step while slot A holds the batch; :func:`train_step` gives the other one."""

BESIDE: dict[GraphId, GraphId] = {
    GraphId.TRANSFER_A: GraphId.DEEP_FWD_BWD,
    GraphId.TRANSFER_B: GraphId.DEEP_FWD_BWD,
}
"""Sub-graphs that run side by side with another one, and rejoin at its end."""

ONLY_IF_FINITE: frozenset[GraphId] = frozenset(
    {
        GraphId.UPDATE_STATS,
        GraphId.OPTIMIZER,
        GraphId.LARS_FC_OPT,
        GraphId.LARS_FIRST_CONV_OPT,
        GraphId.LARS_DEEP_CONV_OPT,
        GraphId.EMA_UPDATE,
        GraphId.ACCUM_METRICS,
    }
)
"""Sub-graphs that change nothing when the step's NaN flag is up. Their kernels read the flag from
device memory; the graph never branches."""

PROLOGUE: tuple[GraphId, ...] = (GraphId.TRANSFER_A,)
"""An epoch begins with one transfer on its own."""

EPOCH_BEGIN: tuple[GraphId, ...] = (GraphId.CLEAR_METRICS,)
"""Before the first step of an epoch, and before a validation."""

INFERENCE_BEGIN: tuple[GraphId, ...] = (
    GraphId.UPDATE_BN_INF_PARAMS,
    GraphId.CAST_EMA_FP32_TO_FP16,
)
"""Once after training, before any inference: fold batch norms, refresh the EMA's fp16 copies."""

VALIDATION_STEP: tuple[GraphId, ...] = (
    GraphId.TRANSFER_B,
    GraphId.INF_MAIN_A,
    GraphId.ACCUM_METRICS_VAL_LAST,
)
"""A validation batch in slot A, on the main weights."""

_SLOT_B: dict[GraphId, GraphId] = {
    graph_id: GraphId[graph_id.name[:-1] + "B"]
    for graph_id in GraphId
    if graph_id.name.endswith("_A")
}
_SLOT_A: dict[GraphId, GraphId] = {b: a for a, b in _SLOT_B.items()}
_SWAP: dict[GraphId, GraphId] = _SLOT_B | _SLOT_A
_FIRST_BACKWARD = (GraphId.FIRST_LAYER_BWD_A, GraphId.FIRST_LAYER_BWD_B)
_EMA = {GraphId.INF_MAIN_A: GraphId.INF_EMA_A, GraphId.INF_MAIN_B: GraphId.INF_EMA_B}


def holding(slot: Slot, order: tuple[GraphId, ...]) -> tuple[GraphId, ...]:
    """An order written for slot A, while ``slot`` holds the batch."""
    return order if slot == "A" else tuple(_SWAP.get(i, i) for i in order)


def train_step(slot: Slot = "A", *, first_layer_frozen: bool = False) -> tuple[GraphId, ...]:
    """The train step while ``slot`` holds the batch; a frozen first layer has no backward."""
    order = holding(slot, TRAIN_STEP)
    return tuple(i for i in order if not (first_layer_frozen and i in _FIRST_BACKWARD))


def validation_step(slot: Slot = "A", *, ema: bool = False) -> tuple[GraphId, ...]:
    """A validation batch while ``slot`` holds it, on the main or the EMA weights."""
    order = holding(slot, VALIDATION_STEP)
    return tuple(_EMA.get(i, i) if ema else i for i in order)
