"""Sub-graphs of the pools: maximum, average, global average."""

from __future__ import annotations

from typing import Any

from renaissance.core.types import DType
from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value

_OPERATION = {
    "maxpool": "max_pool",
    "avgpool": "average_pool",
    "gap": "global_average_pool",
}

WIDEST_SEARCH = 3
"""Windows up to so wide are searched again in the backward pass that reads their pixels anyway."""


def window(layer: ArchLayer) -> dict[str, Any]:
    """Kernel, stride and pad of a pool; nothing for a global one."""
    names = () if layer.kind == "gap" else ("kernel", "stride", "pad")
    return {name: getattr(layer.params, name) for name in names}


def argmax(trace: Trace, layer: ArchLayer) -> Ref:
    """Where in its window the winner of each output lies, in row-major order."""
    fits = layer.params.kernel**2 <= 256
    return trace.mask(layer, "argmax", DType.UINT8 if fits else DType.INT32)


def tiles_the_map(layer: ArchLayer) -> bool:
    """Whether every pixel lies in one window at most, and few enough share one to be searched."""
    params = layer.params
    return bool(params.kernel == params.stride <= WIDEST_SEARCH and params.pad == 0)


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = pool(x); a maximum remembers its winners."""
    op = _OPERATION[layer.kind]
    y = trace.value(layer, trace.feature(layer), x)
    needs_winners = layer.kind == "maxpool" and x.needs_gradient
    saved = {"argmax": argmax(trace, layer)} if needs_winners else {}
    trace.emit(f"{op}_forward", layer, {"x": x}, {"y": y, **saved}, **window(layer))

    def backward() -> None:
        dy, dx = y.gradient, trace.new_gradient(x)
        if dy is not None and dx is not None:
            trace.emit(f"{op}_backward", layer, {"dy": dy, **saved}, {"dx": dx}, **window(layer))
            trace.contribute(layer, x, dx)

    trace.on_backward(backward, x)
    return y


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """y = pool(x)."""
    y = trace.value(layer, trace.feature(layer), x)
    trace.emit(f"{_OPERATION[layer.kind]}_forward", layer, {"x": x}, {"y": y}, **window(layer))
    return y
