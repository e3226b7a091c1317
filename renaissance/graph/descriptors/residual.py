"""Markers of a residual add on the flat list; together they form a stack machine.

``add2_start`` keeps its input x. The layers up to ``add2_shortcut_end`` are the shortcut path from
x; then the main path runs from x again; ``add2_end`` adds the two.
"""

from __future__ import annotations

from renaissance.core.types import Shape
from renaissance.graph.layer import LayerDescriptor
from renaissance.graph.params import Empty

ADD2_START = "add2_start"
ADD2_SHORTCUT_END = "add2_shortcut_end"
ADD2_END = "add2_end"
MARKERS = (ADD2_START, ADD2_SHORTCUT_END, ADD2_END)


def _same_shape(params: Empty, shape: Shape) -> Shape:
    return shape


DESCRIPTORS = tuple(LayerDescriptor(kind, Empty, _same_shape) for kind in MARKERS)
