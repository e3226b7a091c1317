"""Apply an optimizer to all trainable tensors.

The formulas are those of :mod:`renaissance.algo.optimizer`, with ``jax.numpy``. Norms (LARS) are
per tensor; weight decay follows the tensor's group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from renaissance.algo.optimizer import Optimizer
from renaissance.core.errors import fail
from renaissance.core.types import WeightGroup
from renaissance.lowering.range import Tensors, select


class Trained(NamedTuple):
    """What an optimizer changes, by full tensor name.

    Attributes:
        weights: Master weights.
        first: First moments; empty if the optimizer keeps none.
        second: Second moments; empty likewise.
    """

    weights: Tensors
    first: Tensors
    second: Tensors


def start(optimizer: Optimizer, weights: Mapping[str, jax.Array]) -> Trained:
    """Weights as they are, moments zero.

    Args:
        optimizer: Its slots say which moments there are.
        weights: Initial master weights.
    """
    slots = optimizer.slots
    zeros = {name: jnp.zeros_like(w) for name, w in weights.items()}
    return Trained(
        dict(weights),
        dict(zeros) if slots.first_moment else {},
        dict(zeros) if slots.second_moment else {},
    )


def update(
    optimizer: Optimizer,
    trained: Trained,
    gradients: Mapping[str, jax.Array],
    *,
    groups: Mapping[str, WeightGroup],
    lr: jax.Array | float,
    t: jax.Array | int,
) -> Trained:
    """One step of every tensor that has a gradient; the others (a frozen layer) stay as they are.

    Args:
        optimizer: Rule and hyperparameters.
        trained: Weights and moments before the step.
        gradients: Unscaled, clipped, in the dtype of the weights.
        groups: Group of every tensor: decides on weight decay.
        lr: Learning rate of this step, a scalar.
        t: Number of this applied step, from 1.

    Returns:
        Weights and moments after it.

    Raises:
        ValueError: A gradient of no weight, or of another shape than its weight.
    """
    weights, first, second = dict(trained.weights), dict(trained.first), dict(trained.second)
    for name, g in gradients.items():
        _check(name, g, weights)
        w, m, v = optimizer.update(
            weights[name],
            g,
            first.get(name),
            second.get(name),
            lr=lr,
            t=t,
            decay=groups[name].decays,
            xp=jnp,
        )
        weights[name] = w
        if m is not None:
            first[name] = m
        if v is not None:
            second[name] = v
    return Trained(weights, first, second)


def update_if(flag: jax.Array, new: Trained, old: Trained) -> Trained:
    """The step where the flag holds, else the very bits from before it.

    Args:
        flag: A boolean scalar: whether all gradients were finite.
        new: After the step; may hold NaN when the flag is False.
        old: Before it.
    """
    return Trained(*(select(flag, n, o) for n, o in zip(new, old, strict=True)))


def _check(name: str, gradient: jax.Array, weights: Mapping[str, jax.Array]) -> None:
    if name not in weights:
        fail(ValueError, "gradient", name, f"of one of the weights {sorted(weights)}")
    w = weights[name]
    if (gradient.shape, gradient.dtype) != (w.shape, w.dtype):
        given = (gradient.shape, gradient.dtype.name)
        fail(ValueError, f"gradient of {name}", given, f"that of its weight: {w.shape} {w.dtype}")
