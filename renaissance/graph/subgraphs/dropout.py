"""Sub-graph of dropout: a mask drawn forward, read backward; nothing in inference."""

from __future__ import annotations

from renaissance.core.types import Region
from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value

_RANDOM = {
    name: Ref(Region.S_SCALAR_INT32, name) for name in ("seed", "applied_steps", "skipped_steps")
}
"""What the mask is a pure function of, besides layer and element."""


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = x mask / (1 - p); the identity for p = 0."""
    if layer.params.p == 0:
        return x
    y = trace.value(layer, trace.feature(layer), x)
    mask = trace.mask(layer, "mask")
    trace.emit(
        "dropout_forward",
        layer,
        {"x": x, **_RANDOM},
        {"y": y, "mask": mask},
        p=layer.params.p,
        layer_index=trace.index(layer),
    )

    def backward() -> None:
        dy, dx = y.gradient, trace.new_gradient(x)
        if dy is not None and dx is not None:
            operands = {"dy": dy, "mask": mask}
            trace.emit("dropout_backward", layer, operands, {"dx": dx}, p=layer.params.p)
            trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)
    return y


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """The identity."""
    return x
