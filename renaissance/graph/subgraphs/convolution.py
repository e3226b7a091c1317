"""Sub-graphs of the convolutions: dense, depthwise, grouped."""

from __future__ import annotations

from typing import Any

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs.trace import Trace, weight_stream
from renaissance.graph.subgraphs.value import Value

_OPERATION = {"conv": "conv", "conv_dw": "depthwise_conv", "group_conv": "group_conv"}

CONVOLUTIONS = frozenset(_OPERATION)
"""Kinds of convolution."""


def operation(layer: ArchLayer) -> str:
    """Stem of a convolution's operation names."""
    return _OPERATION[layer.kind]


def window(layer: ArchLayer) -> dict[str, Any]:
    """Stride, pad and groups; the filter's size is its weight's."""
    params = {"stride": layer.params.stride, "pad": layer.params.pad}
    if layer.kind == "group_conv":
        params["groups"] = layer.params.groups
    return params


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x * w."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit(
        f"{operation(layer)}_forward",
        layer,
        {"x": x, "w": trace.weight(layer)},
        {"y": y, "workspace": trace.workspace(layer, "forward")},
        **window(layer),
    )
    leave_backward(trace, layer, x, y)
    return y


def leave_backward(trace: Trace, layer: ArchLayer, x: Value, y: Value) -> None:
    """Put dw and dx on the tape."""

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        _emit_weight_gradient(trace, layer, x, dy)
        dx = trace.new_gradient(x)
        if dx is None:
            return
        trace.emit(
            f"{operation(layer)}_backward_data",
            layer,
            {"dy": dy, "w": trace.weight(layer)},
            {"dx": dx, "workspace": trace.workspace(layer, "backward_data")},
            **window(layer),
        )
        trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)


def _emit_weight_gradient(trace: Trace, layer: ArchLayer, x: Value, dy: Ref) -> None:
    if not trace.trains(layer):
        return
    trace.emit(
        f"{operation(layer)}_backward_weight",
        layer,
        {"x": x, "dy": dy},
        {
            "dw": trace.weight_gradient(layer),
            "workspace": trace.workspace(layer, "backward_weight"),
        },
        stream=weight_stream(x),
        **window(layer),
    )


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x * w."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit(
        f"{operation(layer)}_forward",
        layer,
        {"x": x, "w": trace.weight(layer)},
        {"y": y, "workspace": trace.workspace(layer, "forward")},
        **window(layer),
    )
    return y
