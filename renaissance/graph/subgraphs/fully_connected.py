"""Sub-graphs of the fully connected layer: alone, with an activation, after a global pool."""

from __future__ import annotations

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs.activation import derivative_role
from renaissance.graph.subgraphs.trace import Roles, Trace, weight_stream
from renaissance.graph.subgraphs.value import Derivative, Value


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x w^T + bias."""
    y = trace.value(layer, trace.feature(layer), x)
    _emit_forward(trace, layer, x, {"y": y.ref})

    def backward() -> None:
        emit_backward(trace, layer, x, y.gradient)

    trace.on_backward(backward, x)
    return y


def train_activated(trace: Trace, layer: ArchLayer, activation: ArchLayer, x: Value) -> Value:
    """y = act(x w^T + bias) as one operation.

    The gradient before the activation is named after this layer. Where one layer alone reads y and
    is fully connected too, that layer's data gradient applies the derivative; else one node does.
    """
    y = trace.value(activation, trace.feature(activation), x)
    y.needs_gradient |= trace.trains(layer)
    role = derivative_role(activation.kind)
    z = trace.feature(layer) if role == "z" else None
    _emit_forward(trace, layer, x, {"y": y.ref, "z": z}, activation.kind)
    saved = y.ref if z is None else z
    y.derivative = Derivative(activation.kind, role, saved, layer.name)

    def backward() -> None:
        dy = y.gradient
        if dy is not None and not y.is_linear_gradient:
            dz = trace.gradient_tensor(f"{layer.name}.dy", y.shape)
            operands: Roles = {"dy": dy, role: saved}
            trace.emit(
                "activation_backward", activation, operands, {"dx": dz}, activation=activation.kind
            )
            dy = dz
        emit_backward(trace, layer, x, dy)

    trace.on_backward(backward, x)
    return y


def _emit_forward(
    trace: Trace,
    layer: ArchLayer,
    x: Value,
    outputs: dict[str, Ref | None],
    activation: str | None = None,
) -> None:
    inputs: Roles = {"x": x, "w": trace.weight(layer), "bias": trace.weight(layer, "bias")}
    trace.emit("fc_forward", layer, inputs, outputs, activation=activation)


def emit_backward(trace: Trace, layer: ArchLayer, x: Value, dy: Ref | None) -> None:
    """dw = dy^T x, dbias = sum of dy, dx = dy w."""
    if dy is None:
        return
    emit_weight_gradient(trace, layer, x, x.ref, dy)
    if not x.needs_gradient:
        return
    inputs: Roles = {"dy": dy, "w": trace.weight(layer)}
    derivative = x.derivative if x.consumers == 1 else None
    if derivative is None:
        dx, activation = trace.new_gradient(x), None
    else:
        dx = trace.gradient_tensor(f"{derivative.layer}.dy", x.shape)
        inputs[derivative.role] = derivative.ref
        activation = derivative.activation
        x.is_linear_gradient = True
    trace.emit("fc_backward_data", layer, inputs, {"dx": dx}, activation=activation)
    trace.contribute(layer, x, dx)


def emit_weight_gradient(trace: Trace, layer: ArchLayer, x: Value, source: Ref, dy: Ref) -> None:
    """Gradients of weight and bias from the layer's input ``source``, beside x's gradient."""
    if not trace.trains(layer):
        return
    outputs: Roles = {
        "dw": trace.weight_gradient(layer),
        "dbias": trace.weight_gradient(layer, "bias"),
    }
    inputs: Roles = {"x": source, "dy": dy}
    trace.emit("fc_backward_weight", layer, inputs, outputs, stream=weight_stream(x))


def train_pooled(trace: Trace, gap: ArchLayer, layer: ArchLayer, x: Value) -> Value:
    """y = mean over height and width of x, times w^T, + bias, as one operation."""
    y = trace.value(layer, trace.feature(layer), x)
    pooled = trace.feature(gap)
    inputs: Roles = {"x": x, "w": trace.weight(layer), "bias": trace.weight(layer, "bias")}
    trace.emit("gap_fc_forward", layer, inputs, {"y": y, "pooled": pooled})

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        emit_weight_gradient(trace, layer, x, pooled, dy)
        dx = trace.new_gradient(x)
        if dx is not None:
            operands: Roles = {"dy": dy, "w": trace.weight(layer)}
            trace.emit("gap_fc_backward_data", layer, operands, {"dx": dx})
            trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)
    return y


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x w^T + bias."""
    y = trace.value(layer, trace.feature(layer), x)
    _emit_forward(trace, layer, x, {"y": y.ref})
    return y


def infer_activated(trace: Trace, layer: ArchLayer, activation: ArchLayer, x: Value) -> Value:
    """y = act(x w^T + bias)."""
    y = trace.value(activation, trace.feature(activation), x)
    _emit_forward(trace, layer, x, {"y": y.ref}, activation.kind)
    return y


def infer_pooled(trace: Trace, gap: ArchLayer, layer: ArchLayer, x: Value) -> Value:
    """y = mean over height and width of x, times w^T, + bias."""
    y = trace.value(layer, trace.feature(layer), x)
    pooled = trace.feature(gap)
    inputs: Roles = {"x": x, "w": trace.weight(layer), "bias": trace.weight(layer, "bias")}
    trace.emit("gap_fc_forward", layer, inputs, {"y": y, "pooled": pooled})
    return y
