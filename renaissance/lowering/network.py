"""A whole network on ordinary arrays: the flat list of layers with its residual stack.

``add2_start`` keeps the running array x; the layers up to ``add2_shortcut_end`` turn it into the
shortcut; the main path runs from x again; ``add2_end`` adds the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from renaissance.core.errors import PlanError, ShapeError, fail
from renaissance.core.types import Shape
from renaissance.graph.layer import ArchLayer, StatisticSpec, WeightSpec
from renaissance.lowering import layers as _layers  # noqa: F401  (fills the table of lowerings)
from renaissance.lowering.activation import add
from renaissance.lowering.checks import check_map
from renaissance.lowering.registry import TrainContext, lowering_of

Tensors = Mapping[str, jax.Array]
Apply = Callable[[int, ArchLayer, jax.Array], jax.Array]


class Plan(Protocol):
    """What a network's lowering needs of an :class:`~renaissance.graph.arch_plan.ArchPlan`."""

    @property
    def input_shape(self) -> Shape:
        """Input of one sample, with its real channels."""
        ...

    @property
    def stored_channels(self) -> int:
        """Channels of the input as it lies in memory: the real ones, then zeros."""
        ...

    def primitives(self) -> Iterable[ArchLayer]:
        """The primitive layers in order, residual markers included."""
        ...

    def weights(self) -> Iterable[tuple[str, WeightSpec, ArchLayer]]:
        """Trainable tensors: full name, description, layer."""
        ...

    def statistics(self) -> Iterable[tuple[str, StatisticSpec, ArchLayer]]:
        """Running statistics: full name, description, layer."""
        ...


def forward_train(
    plan: Plan,
    weights: Tensors,
    statistics: Tensors,
    x: Any,
    *,
    seed: Any,
    step: Any,
    first_sample: Any = 0,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Class scores of a batch in training: batch statistics and dropout.

    Args:
        plan: The network.
        weights: Every trainable tensor by full name. fp32 convolution and fc weights are rounded
            where ``x`` is fp16.
        statistics: Running mean and variance by full name; empty to start from 0 and 1.
        x: Images ``(N, H, W, C)``, normalised, with or without the plan's padded channels. Their
            dtype is that of all activations.
        seed: 64-bit key of dropout: an integer or two 32-bit words, low word first.
        step: Index of the training step.
        first_sample: Index in the whole batch of the first row, where a batch is split.

    Returns:
        ``(logits, new_statistics)``: ``(N, K)`` in the dtype of ``x``, and the running statistics
        after this batch by full name.

    Raises:
        PlanError: residual markers are not balanced.
        ShapeError, TypeError: as the layers; the layer is named.
        ValueError: a tensor is missing or a kind has no lowering.
    """
    local = _tensors_by_layer(plan, weights, statistics or initial_statistics(plan))
    new_statistics: dict[str, jax.Array] = {}

    def apply(index: int, layer: ArchLayer, x: jax.Array) -> jax.Array:
        context = TrainContext(seed, step, index, first_sample)
        y, updates = lowering_of(layer.kind).train(layer, local[layer.name], x, context)
        new_statistics.update({f"{layer.name}.{name}": value for name, value in updates.items()})
        return y

    return _walk(plan, x, apply), new_statistics


def forward_infer(plan: Plan, weights: Tensors, statistics: Tensors, x: Any) -> jax.Array:
    """Class scores of a batch at inference: batch norm folded to an affine map, no dropout.

    Args:
        plan: The network.
        weights: Every trainable tensor by full name.
        statistics: Running mean and variance by full name. A batch norm that finds ``eq_scale`` and
            ``eq_bias`` here, folded already, uses these instead.
        x: Images ``(N, H, W, C)``, normalised, with or without the plan's padded channels. Their
            dtype is that of all activations.

    Returns:
        Logits ``(N, K)`` in the dtype of ``x``.

    Raises:
        As :func:`forward_train`.
    """
    local = _tensors_by_layer(plan, weights, statistics)

    def apply(index: int, layer: ArchLayer, x: jax.Array) -> jax.Array:
        return lowering_of(layer.kind).infer(layer, local[layer.name], x)

    return _walk(plan, x, apply)


def initial_statistics(plan: Plan) -> dict[str, jax.Array]:
    """Running statistics before the first batch: mean 0, variance 1, in fp32.

    Args:
        plan: The network.

    Returns:
        Arrays by full name.
    """
    start = {"mean": jnp.zeros, "var": jnp.ones}
    return {name: start[spec.name](spec.shape, jnp.float32) for name, spec, _ in plan.statistics()}


def run_layers(layers: Iterable[ArchLayer], x: jax.Array, apply: Apply) -> jax.Array:
    """Run primitive layers in order, and the residual markers among them as a stack machine.

    Args:
        layers: Primitives, residual markers included.
        x: Input of the first.
        apply: ``(index, layer, x) -> y`` for a layer that is not a marker.

    Returns:
        Output of the last layer.

    Raises:
        PlanError: the markers are not balanced.
        ShapeError, TypeError: from a layer, whose name is put in front.
    """
    inputs: list[jax.Array] = []
    shortcuts: list[jax.Array | None] = []
    for index, layer in enumerate(layers):
        if layer.kind == "add2_start":
            inputs.append(x)
            shortcuts.append(None)
        elif layer.kind == "add2_shortcut_end":
            if not inputs or shortcuts[-1] is not None:
                fail(PlanError, "residual marker", layer.name, "an add2_start before it")
            shortcuts[-1], x = x, inputs[-1]
        elif layer.kind == "add2_end":
            if not inputs or shortcuts[-1] is None:
                fail(PlanError, "residual marker", layer.name, "an add2_shortcut_end before it")
            inputs.pop()
            x = _named(layer, add, shortcuts.pop(), x)
        else:
            x = _named(layer, apply, index, layer, x)
    if inputs:
        fail(PlanError, "open residual adds at the end", len(inputs), "0")
    return x


def _walk(plan: Plan, x: Any, apply: Apply) -> jax.Array:
    x = check_map("images", x)
    channels = sorted({plan.input_shape.c, plan.stored_channels})
    if x.shape[3] not in channels:
        expected = " or ".join(map(str, channels))
        fail(ShapeError, f"channels of images {tuple(x.shape)}", x.shape[3], expected)
    y = run_layers(plan.primitives(), x, apply)
    return y.reshape(y.shape[0], -1)


def _named(layer: ArchLayer, function: Callable[..., jax.Array], *arguments: Any) -> jax.Array:
    """Call with the layer's name on the operations (for profiles) and on errors."""
    try:
        with jax.named_scope(layer.name):
            return function(*arguments)
    except (ShapeError, TypeError) as error:
        if type(error) not in (ShapeError, TypeError):
            raise  # one of jax's own, made of more than a message
        raise type(error)(f"layer {layer.name}: {error}") from error


def _tensors_by_layer(
    plan: Plan, weights: Tensors, statistics: Tensors
) -> dict[str, dict[str, jax.Array]]:
    """Each layer's tensors by local name."""
    local: dict[str, dict[str, jax.Array]] = {layer.name: {} for layer in plan.primitives()}
    for name, spec, layer in plan.weights():
        if name not in weights:
            fail(ValueError, "missing weight", name, f"an array of shape {spec.shape}")
        local[layer.name][spec.name] = weights[name]
    for name, statistic, layer in plan.statistics():
        folded = {key: f"{layer.name}.{key}" for key in ("eq_scale", "eq_bias")}
        if all(full in statistics for full in folded.values()):
            local[layer.name].update({key: statistics[full] for key, full in folded.items()})
        elif name in statistics:
            local[layer.name][statistic.name] = statistics[name]
        else:
            fail(ValueError, "missing statistic", name, f"an array of shape {statistic.shape}")
    return local
