"""Sub-graphs of layers that only change how a map is read, and of layers nobody described."""

from __future__ import annotations

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.registry import descriptor_of
from renaissance.graph.subgraphs.trace import Roles, Trace
from renaissance.graph.subgraphs.value import Value


def alias(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """The same bytes under the same name: identity, and flatten (maps lie in H, W, C order)."""
    return x


def train_padding(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x with zero channels appended; dx = dy without them."""
    y = infer_padding(trace, layer, x)

    def backward() -> None:
        dy, dx = y.gradient, trace.new_gradient(x)
        if dy is not None and dx is not None:
            trace.emit("channel_padding_backward", layer, {"dy": dy}, {"dx": dx})
            trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)
    return y


def infer_padding(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x with zero channels appended."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit("channel_padding_forward", layer, {"x": x}, {"y": y})
    return y


def train_any(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """A layer registered without a sub-graph: one operation each way, on all tensors it has."""
    y = trace.value(layer, trace.feature(layer), x)
    weights = _weights(trace, layer)
    statistics = [s.name for s in descriptor_of(layer.kind).statistics(layer)]
    old = {name: trace.statistic(layer, name) for name in statistics}
    new = {f"next_{name}": trace.statistic(layer, name, new=True) for name in statistics}
    trace.emit(
        "layer_forward",
        layer,
        {"x": x, **weights, **old},
        {"y": y, **new},
        kind=layer.kind,
        layer_index=trace.index(layer),
    )

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        trained = weights if trace.trains(layer) else {}
        outputs: Roles = {f"d{name}": trace.weight_gradient(layer, name) for name in trained}
        dx = trace.new_gradient(x)
        if dx is None and not outputs:
            return
        inputs: Roles = {"x": x, "y": y, "dy": dy, **weights}
        trace.emit("layer_backward", layer, inputs, {"dx": dx, **outputs}, kind=layer.kind)
        trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)
    return y


def infer_any(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """A layer registered without a sub-graph, on its weights and running statistics."""
    y = trace.value(layer, trace.feature(layer), x)
    names = [s.name for s in descriptor_of(layer.kind).statistics(layer)]
    statistics = {name: trace.statistic(layer, name) for name in names}
    inputs: Roles = {"x": x, **_weights(trace, layer), **statistics}
    trace.emit("layer_inference", layer, inputs, {"y": y}, kind=layer.kind)
    return y


def _weights(trace: Trace, layer: ArchLayer) -> dict[str, Ref | None]:
    names = [spec.name for spec in descriptor_of(layer.kind).weights(layer)]
    return {name: trace.weight(layer, name) for name in names}
