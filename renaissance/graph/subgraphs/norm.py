"""Sub-graphs of batch norm: alone, after a convolution, before an activation or a max-pool."""

from __future__ import annotations

from typing import Any

from renaissance.core.types import Region
from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs import convolution, pooling
from renaissance.graph.subgraphs.trace import Roles, Trace
from renaissance.graph.subgraphs.value import PendingNorm, Value

NORMS = frozenset({"bn1d", "bn2d"})
"""Kinds of batch norm."""


def channels(layer: ArchLayer) -> int:
    """Channels a batch norm normalises."""
    return layer.in_shape.c


def affine(trace: Trace, layer: ArchLayer) -> Roles:
    """gamma and beta."""
    return {"gamma": trace.weight(layer), "beta": trace.weight(layer, "bias")}


def affine_gradients(trace: Trace, layer: ArchLayer) -> Roles:
    """dgamma and dbeta."""
    return {
        "dgamma": trace.weight_gradient(layer),
        "dbeta": trace.weight_gradient(layer, "bias"),
    }


def saved_statistics(trace: Trace, layer: ArchLayer) -> dict[str, Ref]:
    """This batch's mean and inverse standard deviation, kept for the backward pass."""
    rule = (channels(layer),)
    return {
        "mean": trace.temporary(layer, "batch_mean", rule),
        "inverse_std": trace.temporary(layer, "batch_inverse_std", rule),
    }


def running(trace: Trace, layer: ArchLayer, prefix: str) -> dict[str, Ref]:
    """Running mean and variance, before (``"prev"``) or after (``"next"``) the step."""
    is_new = prefix == "next"
    return {f"{prefix}_{n}": trace.statistic(layer, n, new=is_new) for n in ("mean", "var")}


def constants(layer: ArchLayer) -> dict[str, Any]:
    """Momentum and eps."""
    return {"momentum": layer.params.momentum, "eps": layer.params.eps}


def train(trace: Trace, layer: ArchLayer, x: Value, activation: ArchLayer | None = None) -> Value:
    """y = act(norm(x)): reduce x, then apply."""
    last = activation or layer
    y = trace.value(last, trace.feature(last), x)
    y.needs_gradient |= trace.trains(layer)
    saved = saved_statistics(trace, layer)
    inputs: Roles = {"x": x, **affine(trace, layer), **running(trace, layer, "prev")}
    partial = trace.partial(layer, 2 * channels(layer), "forward")
    outputs: Roles = {"y": y, **saved, **running(trace, layer, "next"), "partial": partial}
    kind = None if activation is None else activation.kind
    trace.emit("batch_norm_forward", layer, inputs, outputs, activation=kind, **constants(layer))
    _leave_backward(trace, PendingNorm(layer, {**affine(trace, layer), **saved}), kind, x, y)
    return y


def train_after_conv(trace: Trace, conv: ArchLayer, layer: ArchLayer, x: Value) -> Value:
    """The convolution's epilogue reduces its output; the norm itself is left pending."""
    raw = trace.value(conv, trace.feature(conv), x)
    saved = saved_statistics(trace, layer)
    trace.emit(
        f"{convolution.operation(conv)}_statistics_forward",
        conv,
        {"x": x, "w": trace.weight(conv), **running(trace, layer, "prev")},
        {
            "y": raw,
            **saved,
            **running(trace, layer, "next"),
            "workspace": trace.workspace(conv, "forward"),
            "partial": trace.partial(layer, 2 * channels(layer), "forward"),
        },
        **convolution.window(conv),
        **constants(layer),
    )
    convolution.leave_backward(trace, conv, x, raw)
    raw.pending = PendingNorm(layer, {**affine(trace, layer), **saved})
    return raw


def apply_pending(trace: Trace, raw: Value, activation: ArchLayer | None = None) -> Value:
    """y = act(norm(raw)) with statistics that are already there."""
    pending = raw.pending
    assert pending is not None
    layer = pending.layer
    last = activation or layer
    y = trace.value(last, trace.feature(last), raw)
    y.needs_gradient |= trace.trains(layer)
    kind = None if activation is None else activation.kind
    trace.emit("batch_norm_apply", layer, {"x": raw, **pending.operands}, {"y": y}, activation=kind)
    _leave_backward(trace, pending, kind, raw, y)
    return y


def _leave_backward(
    trace: Trace, norm: PendingNorm, activation: str | None, x: Value, y: Value
) -> None:
    layer = norm.layer
    y.takes_addend = True

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        dx = trace.new_gradient(x)
        partial = trace.partial(layer, 2 * channels(layer), "backward")
        outputs: Roles = {"dx": dx, **affine_gradients(trace, layer), "partial": partial}
        inputs: Roles = {"x": x, "dy": dy, "addend": y.addend, **norm.operands}
        trace.emit("batch_norm_backward", layer, inputs, outputs, activation=activation)
        trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)


def apply_pending_and_pool(
    trace: Trace, raw: Value, activation: ArchLayer, pool: ArchLayer
) -> Value:
    """y = max_pool(act(norm(raw))): the map between norm and pool is never stored.

    Nor are the winners of windows that tile the map: the backward pass finds them again.
    """
    norm = raw.pending
    assert norm is not None
    layer = norm.layer
    y = trace.value(pool, trace.feature(pool), raw)
    y.needs_gradient |= trace.trains(layer)
    is_searched_again = pooling.tiles_the_map(pool)
    saved: Roles = {} if is_searched_again else {"argmax": pooling.argmax(trace, pool)}
    params = {"activation": activation.kind, **pooling.window(pool)}
    inputs: Roles = {"x": raw, **norm.operands}
    outputs: Roles = {"y": y, **saved}
    trace.emit("batch_norm_max_pool_forward", pool, inputs, outputs, **params)

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        dx = trace.new_gradient(raw)
        partial = trace.partial(layer, 2 * channels(layer), "backward")
        outputs: Roles = {"dx": dx, **affine_gradients(trace, layer), "partial": partial}
        inputs: Roles = {"dy": dy, **saved, "x": raw, **norm.operands}
        trace.emit("batch_norm_max_pool_backward", pool, inputs, outputs, **params)
        trace.contribute(layer, raw, dx)

    trace.on_backward(backward, raw)
    return y


# -- inference: the norm is an affine map of the running statistics -------------------------------


def folded(layer: ArchLayer) -> Roles:
    """Scale and bias of the affine map."""
    return {
        "scale": Ref(Region.W_EQ_SCALE, f"{layer.name}.scale"),
        "bias": Ref(Region.W_EQ_BIAS, f"{layer.name}.bias"),
    }


def infer(trace: Trace, layer: ArchLayer, x: Value, activation: ArchLayer | None = None) -> Value:
    """y = act(x scale + bias)."""
    last = activation or layer
    y = trace.value(last, trace.feature(last), x)
    kind = None if activation is None else activation.kind
    trace.emit("affine_forward", layer, {"x": x, **folded(layer)}, {"y": y}, activation=kind)
    return y


def infer_after_conv(
    trace: Trace,
    conv: ArchLayer,
    layer: ArchLayer,
    x: Value,
    activation: ArchLayer | None = None,
    *,
    last: ArchLayer | None = None,
    shortcut: Value | None = None,
) -> Value:
    """y = act(conv(x, w) scale + bias + shortcut), named after ``last``."""
    last = last or activation or layer
    y = trace.value(last, trace.feature(last), x)
    trace.emit(
        f"{convolution.operation(conv)}_affine_forward",
        conv,
        {"x": x, "w": trace.weight(conv), **folded(layer), "shortcut": shortcut},
        {"y": y, "workspace": trace.workspace(conv, "forward")},
        **convolution.window(conv),
        activation=None if activation is None else activation.kind,
    )
    return y


def fold(trace: Trace, layer: ArchLayer) -> None:
    """scale = gamma / sqrt(var + eps), bias = beta - mean scale."""
    inputs: Roles = {
        **affine(trace, layer),
        "mean": trace.statistic(layer, "mean"),
        "var": trace.statistic(layer, "var"),
    }
    trace.emit("batch_norm_fold", layer, inputs, folded(layer), eps=layer.params.eps)
