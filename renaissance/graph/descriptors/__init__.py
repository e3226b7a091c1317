"""One immutable descriptor per layer kind, one file per family."""

from __future__ import annotations

from renaissance.graph.descriptors import (
    activation,
    composite,
    convolution,
    fully_connected,
    head,
    merged,
    norm,
    pooling,
    residual,
    structure,
)
from renaissance.graph.registry import LayerKind, add_kind

# What a blueprint may contain.
for _family in (convolution, norm, activation, pooling, fully_connected, structure, head):
    for _descriptor in _family.DESCRIPTORS:
        add_kind(LayerKind(_descriptor))

for _kind in composite.KINDS:
    add_kind(_kind)

# What only a plan contains.
for _family in (residual, merged):
    for _descriptor in _family.DESCRIPTORS:
        add_kind(LayerKind(_descriptor, in_blueprint=False))
