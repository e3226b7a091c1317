"""The whole train step of the XLA lowering: one pure function, in the order of the graph.

The order is data (:data:`renaissance.graph.computation_graph.TRAIN_STEP`). Each sub-graph has one
function here that works on a :class:`Workspace`. XLA differentiates the network as a whole, so the
first layer's forward and backward happen inside DEEP_FWD_BWD; all-reduces have nothing to do on one
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp

from renaissance.core.types import GraphId, Precision, Region, WeightGroup
from renaissance.lowering import optimizer as optimizers
from renaissance.lowering import range as ranges
from renaissance.lowering.loss import softmax_cross_entropy, top_k_hits
from renaissance.lowering.network import forward_train
from renaissance.lowering.recipe import METRICS, Recipe
from renaissance.lowering.state import ArrayState, Tensors


@dataclass
class Workspace:
    """What one trace of the step carries from sub-graph to sub-graph."""

    recipe: Recipe
    state: ArrayState
    images: jax.Array
    labels: jax.Array
    gradients: Tensors = field(default_factory=dict)
    statistics: Tensors = field(default_factory=dict)
    result: Tensors = field(default_factory=dict)
    finite: jax.Array = field(default_factory=lambda: jnp.asarray(True))

    def weights(self, role: str) -> Tensors:
        """All trainable tensors in a role's regions, by full name."""
        groups = self.recipe.groups.values()
        regions = [g.region(role) for g in dict.fromkeys(groups)]
        return {n: v for region in regions for n, v in self.state.region(region).items()}

    def store(self, role: str, tensors: Tensors) -> None:
        """Write trainable tensors back to a role's regions."""
        updates: dict[Region, Tensors] = {}
        for name, value in tensors.items():
            region = self.recipe.groups[name].region(role)
            updates.setdefault(region, dict(self.state.region(region)))[name] = value
        self.state = self.state.replace(updates)

    def scalar(self, region: Region, name: str) -> jax.Array:
        """A scalar of the state."""
        return self.state.region(region)[name]

    def set_scalars(self, region: Region, **values: jax.Array) -> None:
        """Replace scalars of the state, keeping their types."""
        old = self.state.region(region)
        new = {n: jnp.asarray(v, old[n].dtype).reshape(old[n].shape) for n, v in values.items()}
        self.state = self.state.replace({region: {**old, **new}})


def compute_weights(workspace: Workspace) -> Tensors:
    """The tensors the network computes with: fp16 copies of matrix operands under AMP."""
    weights = workspace.weights("W")
    for region in (Region.A_FC_WEIGHT, Region.A_FIRST_CONV, Region.A_DEEP_CONV):
        weights |= workspace.state.region(region)
    return weights


def statistics_of(state: ArrayState) -> Tensors:
    """Running statistics by full name."""
    return {**state.region(Region.B_PREV_MEAN), **state.region(Region.B_PREV_VAR)}


def set_learning_rate(w: Workspace) -> None:
    """The lr scalar and the bias corrections of this step; the step index counts applied steps."""
    table = w.scalar(Region.S_SCALAR_FP32, "lr_table")
    applied = w.scalar(Region.S_SCALAR_INT32, "applied_steps")
    lr = table[jnp.minimum(applied, table.shape[0] - 1)]
    w.set_scalars(Region.S_SCALAR_FP32, lr=lr)


def deep_forward_backward(w: Workspace) -> None:
    """Forward, loss, and the gradient of the scaled loss with respect to every trained tensor."""
    recipe = w.recipe
    weights = compute_weights(w)
    trained = {n: v for n, v in weights.items() if n in recipe.trained}
    frozen = {n: v for n, v in weights.items() if n not in recipe.trained}
    counters = w.state.region(Region.S_SCALAR_INT32)
    scale = w.scalar(Region.S_SCALAR_FP32, "loss_scale")
    x = w.images.astype(recipe.precision.compute.numpy)

    def scaled_loss(trained: Tensors) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Tensors]]:
        logits, statistics = forward_train(
            recipe.plan,
            {**trained, **frozen},
            statistics_of(w.state),
            x,
            seed=counters["seed"],
            step=counters["applied_steps"] + counters["skipped_steps"],
        )
        loss = softmax_cross_entropy(logits, w.labels, label_smoothing=recipe.loss.label_smoothing)
        return loss * scale.astype(loss.dtype), (loss, logits, statistics)

    w.gradients, (loss, logits, w.statistics) = jax.grad(scaled_loss, has_aux=True)(trained)
    w.result = batch_result(loss, logits, w.labels)


def batch_result(loss: jax.Array, logits: jax.Array, labels: jax.Array) -> Tensors:
    """R_RESULT of a batch: sums over its rows, so that batches of any size add up."""
    count = labels.shape[0]
    return {
        "loss": (loss * count).astype(jnp.float32),
        "top1": jnp.sum(top_k_hits(logits, labels, 1), dtype=jnp.float32),
        "top5": jnp.sum(top_k_hits(logits, labels, 5), dtype=jnp.float32),
        "count": jnp.float32(count),
    }


def cast_gradients(w: Workspace, first: bool) -> None:
    """fp16 gradients of the first convolution, or of everything else, to the master type."""
    master = w.recipe.precision.master.numpy
    for name, gradient in w.gradients.items():
        if (w.recipe.groups[name] is WeightGroup.FIRST_CONV) is first:
            w.gradients[name] = gradient.astype(master)


def check_and_scale_gradients(w: Workspace) -> None:
    """One flag for the whole step, then unscale and clip."""
    scale = w.scalar(Region.S_SCALAR_FP32, "loss_scale")
    w.finite = ranges.all_finite(w.gradients)
    w.set_scalars(Region.S_SCALAR_INT32, nan_flag=~w.finite)
    w.gradients = ranges.unscale(w.gradients, scale)
    if w.recipe.clip is not None:
        w.gradients = ranges.clip(w.gradients, w.recipe.clip)


def update_statistics(w: Workspace) -> None:
    """Running statistics move on, unless the step is skipped."""
    new = ranges.select(w.finite, w.statistics, statistics_of(w.state))
    w.state = w.state.replace(
        {
            region: {n: new[n] for n in w.state.region(region)}
            for region in (Region.B_PREV_MEAN, Region.B_PREV_VAR)
        }
    )


def apply_optimizer(w: Workspace) -> None:
    """Weights and moments move on, unless the step is skipped; t counts applied steps from 1."""
    old = optimizers.Trained(w.weights("W"), w.weights("M"), w.weights("V"))
    new = optimizers.update(
        w.recipe.optimizer,
        old,
        w.gradients,
        groups=w.recipe.groups,
        lr=w.scalar(Region.S_SCALAR_FP32, "lr"),
        t=w.scalar(Region.S_SCALAR_INT32, "applied_steps") + 1,
    )
    for role, tensors in zip("WMV", optimizers.update_if(w.finite, new, old), strict=True):
        w.store(role, tensors)


def update_ema(w: Workspace) -> None:
    """e <- d e + (1 - d) w after an applied step."""
    if w.recipe.ema is not None:
        old = w.weights("E")
        new = ranges.ema(old, w.weights("W"), w.recipe.ema)
        w.store("E", ranges.select(w.finite, new, old))


def cast_main_weights(w: Workspace) -> None:
    """Refresh the fp16 compute copies from the masters."""
    if w.recipe.precision is Precision.AMP:
        masters = w.weights("W").items()
        matrices = {n: v for n, v in masters if w.recipe.groups[n].has_compute_copy}
        w.store("A", ranges.cast(matrices, jnp.float16))


def accumulate_metrics(w: Workspace) -> None:
    """Add this batch to the epoch's sums, unless the step is skipped."""
    old = w.state.region(Region.R_RESULT_ACCUMULATED)
    new = ranges.select(w.finite, ranges.accumulate(old, w.result), old)
    w.state = w.state.replace({Region.R_RESULT: w.result, Region.R_RESULT_ACCUMULATED: new})


def advance_counters(w: Workspace) -> None:
    """Count the step as applied or skipped, and move the loss scale."""
    counters = w.state.region(Region.S_SCALAR_INT32)
    applied = jnp.asarray(w.finite, jnp.int32)
    scale, clean = w.recipe.loss_scale.advance(
        w.scalar(Region.S_SCALAR_FP32, "loss_scale"), counters["clean_steps"], w.finite, xp=jnp
    )
    w.set_scalars(Region.S_SCALAR_FP32, loss_scale=scale)
    w.set_scalars(
        Region.S_SCALAR_INT32,
        applied_steps=counters["applied_steps"] + applied,
        skipped_steps=counters["skipped_steps"] + 1 - applied,
        clean_steps=clean,
        overflow_run=jnp.where(w.finite, 0, counters["overflow_run"] + 1),
    )


def _nothing(w: Workspace) -> None:
    """Clearing, transfers and all-reduces have no work in a pure function on one device."""


SEGMENTS: dict[GraphId, Callable[[Workspace], None]] = {
    GraphId.ZERO_GRAD: _nothing,
    GraphId.FIRST_LAYER_FWD_A: _nothing,
    GraphId.TRANSFER_B: _nothing,
    GraphId.DEEP_FWD_BWD: deep_forward_backward,
    GraphId.FIRST_LAYER_BWD_A: _nothing,
    GraphId.CAST_DEEP_GRAD_FP16_TO_FP32: partial(cast_gradients, first=False),
    GraphId.DEEP_COMM: _nothing,
    GraphId.CAST_FIRST_GRAD_FP16_TO_FP32: partial(cast_gradients, first=True),
    GraphId.FIRST_COMM: _nothing,
    GraphId.NAN_CHECK_AND_GRAD_SCALING: check_and_scale_gradients,
    GraphId.STATS_COMM: _nothing,
    GraphId.UPDATE_STATS: update_statistics,
    GraphId.OPTIMIZER: apply_optimizer,
    GraphId.LARS_FC_OPT: _nothing,
    GraphId.LARS_FIRST_CONV_OPT: _nothing,
    GraphId.LARS_DEEP_CONV_OPT: _nothing,
    GraphId.EMA_UPDATE: update_ema,
    GraphId.CAST_MAIN_FP32_TO_FP16: cast_main_weights,
    GraphId.ACCUM_METRICS: accumulate_metrics,
}


def train_step(
    recipe: Recipe,
    order: Sequence[GraphId],
    state: ArrayState,
    images: jax.Array,
    labels: jax.Array,
) -> tuple[ArrayState, jax.Array]:
    """One training step.

    Args:
        recipe: What is fixed at compile time.
        order: The sub-graphs to run, in order.
        state: The state before.
        images: (N, H, W, C), normalised; cast to the compute type.
        labels: (N,) int32.

    Returns:
        The state after, and the batch's metrics (6,) fp32 in the order of :data:`METRICS`:
        ``loss`` (mean over rows), ``top1`` and ``top5`` (fractions), ``count`` (rows), ``lr``,
        ``skipped`` (1 if a gradient was not finite).
    """
    w = Workspace(recipe, state, images, labels)
    set_learning_rate(w)
    for graph_id in order:
        SEGMENTS[graph_id](w)
    advance_counters(w)
    values = {
        **w.result,
        **{n: w.result[n] / w.result["count"] for n in ("loss", "top1", "top5")},
        "lr": w.scalar(Region.S_SCALAR_FP32, "lr"),
        "skipped": ~w.finite,
    }
    return w.state, jnp.stack([values[name].astype(jnp.float32) for name in METRICS])
