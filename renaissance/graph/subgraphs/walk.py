"""Walks the flat network and emits its nodes: layer by layer, or in the patterns fusion allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs import fully_connected, norm, residual
from renaissance.graph.subgraphs.activation import ACTIVATIONS
from renaissance.graph.subgraphs.convolution import CONVOLUTIONS
from renaissance.graph.subgraphs.norm import NORMS
from renaissance.graph.subgraphs.registry import layer_graph
from renaissance.graph.subgraphs.trace import Trace
from renaissance.graph.subgraphs.value import Value

_CONV, _NORM, _ACTIVATION = "conv", "norm", "activation"
_FAMILY: dict[str, str] = {
    **dict.fromkeys(CONVOLUTIONS, _CONV),
    **dict.fromkeys(NORMS, _NORM),
    **dict.fromkeys(ACTIVATIONS, _ACTIVATION),
}

PATTERNS: tuple[tuple[str, ...], ...] = (
    (_CONV, _NORM, _ACTIVATION, "maxpool"),
    (_CONV, _NORM, _ACTIVATION),
    (_CONV, _NORM),
    (_NORM, _ACTIVATION),
    ("add2_end", _ACTIVATION),
    ("gap", "fc"),
    ("fc", _ACTIVATION),
)
"""Neighbours that become one or two operations under fusion, the longest first. The merged kinds of
a plan are made of these: a bottleneck is conv-norm-activation twice, and a conv-norm whose norm
waits for the add."""


def units(layers: Sequence[ArchLayer], fuse: bool) -> Iterator[tuple[ArchLayer, ...]]:
    """The network cut into patterns; single layers where none fits, or where ``fuse`` is off."""
    families = [_FAMILY.get(layer.kind, layer.kind) for layer in layers]
    index = 0
    while index < len(layers):
        length = _match(families, index) if fuse else 1
        yield tuple(layers[index : index + length])
        index += length


def _match(families: Sequence[str], index: int) -> int:
    for pattern in PATTERNS:
        if tuple(families[index : index + len(pattern)]) == pattern:
            return len(pattern)
    return 1


@dataclass
class Walker:
    """The state of a walk: the current value, and the stack of open residual blocks."""

    trace: Trace
    x: Value
    starts: list[Value] = field(default_factory=list)
    shortcuts: list[Value] = field(default_factory=list)

    def run(self, layers: Sequence[ArchLayer]) -> Value:
        """Walk all layers and return the last value."""
        cut = list(units(layers, self.trace.fuse))
        ends = ("add2_end", "add2_shortcut_end") if self.trace.is_training else ("add2_end",)
        for unit, after in zip(cut, [*cut[1:], ()], strict=True):
            # a norm right before the end of a path waits: the add can take it along
            self.step(unit, waits=bool(after) and after[0].kind in ends)
        return self.x

    def step(self, unit: tuple[ArchLayer, ...], waits: bool) -> None:
        """Walk one unit."""
        layer = unit[0]
        if layer.kind == "add2_start":
            self.starts.append(self.x)
        elif layer.kind == "add2_shortcut_end":
            self.shortcuts.append(self.x)
            self.x = self.starts[-1]
        elif layer.kind == "add2_end":
            self.starts.pop()
            add = residual.train if self.trace.is_training else residual.infer
            self.x = add(self.trace, layer, self.shortcuts.pop(), self.x, *unit[1:])
        elif len(unit) == 1:
            graph = layer_graph(layer.kind)
            rule = graph.train if self.trace.is_training else graph.infer
            self.x = rule(self.trace, layer, self.x)
        elif self.trace.is_training:
            self.x = _train_pattern(self.trace, unit, self.x, waits)
        else:
            self.x = _infer_pattern(self.trace, unit, self.x, waits)


def _train_pattern(trace: Trace, unit: tuple[ArchLayer, ...], x: Value, waits: bool) -> Value:
    first, second, *rest = unit
    match _FAMILY.get(first.kind, first.kind):
        case "conv":
            raw = norm.train_after_conv(trace, first, second, x)
            if len(rest) == 2:
                return norm.apply_pending_and_pool(trace, raw, *rest)
            return raw if waits and not rest else norm.apply_pending(trace, raw, *rest)
        case "norm":
            return norm.train(trace, first, x, second)
        case "gap":
            return fully_connected.train_pooled(trace, first, second, x)
    return fully_connected.train_activated(trace, first, second, x)


def _infer_pattern(trace: Trace, unit: tuple[ArchLayer, ...], x: Value, waits: bool) -> Value:
    first, second, *rest = unit
    match _FAMILY.get(first.kind, first.kind):
        case "conv":
            if waits and not rest:
                deferred = {"conv": first, "layer": second, "x": x}
                return Value(x.ref, second.name, x.shape, False, deferred=deferred)
            y = norm.infer_after_conv(trace, first, second, x, *rest[:1])
            return layer_graph("maxpool").infer(trace, rest[1], y) if rest[1:] else y
        case "norm":
            return norm.infer(trace, first, x, second)
        case "gap":
            return fully_connected.infer_pooled(trace, first, second, x)
    return fully_connected.infer_activated(trace, first, second, x)
