"""Inference of the XLA lowering: BN folded to an affine map, main or averaged weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from renaissance.core.types import Precision
from renaissance.lowering.loss import predicted_labels, softmax_cross_entropy
from renaissance.lowering.network import forward_infer
from renaissance.lowering.recipe import Recipe
from renaissance.lowering.state import ArrayState, Tensors
from renaissance.lowering.step import (
    Workspace,
    batch_result,
    compute_weights,
    statistics_of,
)


def infer(
    recipe: Recipe, state: ArrayState, images: jax.Array, labels: jax.Array, *, ema: bool = False
) -> tuple[Tensors, jax.Array]:
    """Results of a batch without training.

    Args:
        recipe: What is fixed at compile time.
        state: Read only.
        images: (N, H, W, C), normalised.
        labels: (N,) int32.
        ema: Use the moving average of the weights.

    Returns:
        Sums over the rows (``loss``, ``top1``, ``top5``, ``count``), and the predicted class of
        each row, (N,) int32.
    """
    workspace = Workspace(recipe, state, images, labels)
    weights = averaged_weights(workspace) if ema else compute_weights(workspace)
    x = images.astype(recipe.precision.compute.numpy)
    logits = forward_infer(recipe.plan, weights, statistics_of(state), x)
    loss = softmax_cross_entropy(logits, labels, label_smoothing=recipe.loss.label_smoothing)
    return batch_result(loss, logits, labels), predicted_labels(logits)


def averaged_weights(workspace: Workspace) -> Tensors:
    """The moving average, its matrix operands in the compute type."""
    recipe = workspace.recipe
    average = workspace.weights("E")
    if recipe.precision is Precision.AMP:
        half = {n: v for n, v in average.items() if recipe.groups[n].has_compute_copy}
        average |= {n: v.astype(jnp.float16) for n, v in half.items()}
    return average
