"""The fused lowering: the computation graph threaded in place through the banks.

A train step is the prologue's transfer, the graph's train order, and a report of what the step
measured. Every operation is one custom call on planned memory; nothing is left for XLA to place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from renaissance.core.types import Bank, GraphId, Region
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import Ref
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import (
    Banks,
    InPlaceCall,
    PlanLaunches,
    check_places,
    no_launches,
    thread,
)
from renaissance.lowering.calls.scene import BATCH, TABLE, Scene
from renaissance.lowering.fused.nodes import lower_nodes
from renaissance.lowering.rewrites.joined_banks import array_bytes, bases_of, moved
from renaissance.lowering.rewrites.simplify import simplify

TABLE_WIDTH = 8  # the columns of METRICS, loss and accuracies as sums; the last two are not used

_TRANSFERS = frozenset({GraphId.TRANSFER_A, GraphId.TRANSFER_B})


@dataclass(frozen=True)
class FusedPass:
    """A fixed sequence of calls for batches of one shape.

    Attributes:
        calls: In order; the first takes a batch into its slot, the last reports.
        bank_bytes: Sizes of the arrays of banks they touch.
    """

    calls: tuple[InPlaceCall, ...]
    bank_bytes: dict[Bank, int]

    def run(
        self,
        banks: Banks,
        table: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        batch: jax.Array,
        plan_launches: PlanLaunches = no_launches,
    ) -> tuple[Banks, jax.Array]:
        """Emit the pass on one batch of a stack.

        Args:
            banks: The banks, each given up.
            table: fp32 ``(S, 8)``, a row for each batch of the stack.
            images: ``(S, N, H, W, C)``.
            labels: int32 ``(S, N)``.
            batch: int32 scalar, which one.
            plan_launches: The kernels of a call.

        Returns:
            The banks and the table after it.
        """
        arguments = {"images": images, "labels": labels, "batch": batch, "table": table}
        banks, after = thread(self.calls, banks, arguments, plan_launches)
        return banks, after["table"]


def train_pass(graph: CompiledGraph, scene: Scene, *, simplified: bool = True) -> FusedPass:
    """The train step of one variant.

    Args:
        graph: The network's graph and plans.
        scene: What this variant's lowering looks things up in.
        simplified: Merge calls into fewer launches; without, one call per node of the graph.

    Raises:
        PlanError: an operation cannot be lowered in place, or reaches outside its bank.
    """
    order = [GraphId.TRANSFER_A, *(i for i in graph.train_order if i not in _TRANSFERS)]
    return _pass(graph, scene, order, training=True, simplified=simplified)


def inference_pass(graph: CompiledGraph, scene: Scene, *, ema: bool) -> FusedPass:
    """The inference of one variant: a batch through the main weights, or their average.

    Raises:
        PlanError: as :func:`train_pass`.
    """
    prepare = [GraphId.UPDATE_BN_INF_PARAMS, *([GraphId.CAST_EMA_FP32_TO_FP16] if ema else [])]
    main = GraphId.INF_EMA_A if ema else GraphId.INF_MAIN_A
    return _pass(graph, scene, [*prepare, GraphId.TRANSFER_A, main], training=False)


def _pass(
    graph: CompiledGraph,
    scene: Scene,
    order: Sequence[GraphId],
    *,
    training: bool,
    simplified: bool = False,
) -> FusedPass:
    calls = lower_nodes(scene, graph.graph.nodes(order))
    calls.append(_report(scene, training=training))
    if training and simplified:
        calls = simplify(scene, calls)
    banks = {bank for call in calls for bank in call.banks}
    sizes = {bank: scene.memory.bank_bytes(bank) for bank in Bank if bank in banks}
    check_places(calls, sizes)
    bases = bases_of(scene.memory)
    if not bases:
        return FusedPass(tuple(calls), sizes)
    return FusedPass(moved(calls, bases), array_bytes(scene.memory))


def _report(scene: Scene, *, training: bool) -> InPlaceCall:
    names = ("loss", "top1", "top5", "count")
    sums = tuple(scene.place(Ref(Region.R_RESULT, name)) for name in names)
    lr, flag = Ref(Region.S_SCALAR_FP32, "lr"), Ref(Region.S_SCALAR_INT32, "nan_flag")
    state = (scene.place(lr), scene.place(flag)) if training else (None, None)
    return InPlaceCall(targets.REPORT_METRICS, (*sums, *state, BATCH, TABLE), {}, "report")


def empty_table(steps: int) -> jax.Array:
    """A table for the reports of so many steps."""
    return jnp.zeros((steps, TABLE_WIDTH), jnp.float32)
