"""Sub-graphs of the activations."""

from __future__ import annotations

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs.trace import Roles, Trace
from renaissance.graph.subgraphs.value import Value

ACTIVATIONS = frozenset(
    {"relu", "relu6", "leaky_relu", "silu", "hardswish", "elu", "sigmoid", "tanh"}
)
"""Kinds an epilogue can apply."""

NEEDS_INPUT = frozenset({"silu", "hardswish"})
"""Kinds whose derivative cannot be read off their output."""


STEPS = frozenset({"relu", "relu6"})
"""Kinds whose slope is 0 or 1, so that a bit says it."""


def derivative_role(activation: str) -> str:
    """``"y"`` or ``"z"``: what the derivative is computed from, output or input."""
    return "z" if activation in NEEDS_INPUT else "y"


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = act(x); backward reads whichever of the two its derivative needs."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit("activation_forward", layer, {"x": x}, {"y": y}, activation=layer.kind)
    role = derivative_role(layer.kind)
    operand = x.ref if role == "z" else y.ref

    def backward() -> None:
        emit_backward(trace, layer, x, y.gradient, {role: operand})

    trace.on_backward(backward, x)
    return y


def emit_backward(trace: Trace, layer: ArchLayer, x: Value, dy: Ref | None, saved: Roles) -> None:
    """dx = dy act'(saved)."""
    dx = trace.new_gradient(x)
    if dy is None or dx is None:
        return
    trace.emit("activation_backward", layer, {"dy": dy, **saved}, {"dx": dx}, activation=layer.kind)
    trace.contribute(layer, x, dx)


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = act(x)."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit("activation_forward", layer, {"x": x}, {"y": y}, activation=layer.kind)
    return y
