"""The network as a picture: forward down the left, backward up the right, a layer a row."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.core.types import GraphId, StreamKind
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import ComputeNode, Ref
from renaissance.graph.report.palette import operation_colour
from renaissance.graph.report.svg import Drawing

_TOP, _ROW, _BOX = 120.0, 26.0, 20.0
_FORWARD, _WIDE = 190.0, 320.0
_BACKWARD, _NARROW = 600.0, 262.0
_SIDE = _BACKWARD + _NARROW + 14
_PASSES = (GraphId.FIRST_LAYER_FWD_A, GraphId.DEEP_FWD_BWD, GraphId.FIRST_LAYER_BWD_A)


def graph_svg(result: CompiledGraph, title: str) -> str:
    """A drawing of forward and backward pass.

    A row holds what belongs to one forward operation: the operation, its data gradient, its weight
    gradient. Arcs on the left are values that skip operations: the shortcuts.
    """
    forward, backward = _split(result)
    rows = _rows_of(forward, backward)
    height = _TOP + _ROW * len(forward) + 60
    drawing = Drawing(_SIDE + _NARROW + 40, height, title)
    drawing.text(40, 36, title, size=18, bold=True)
    note = "Forward goes down, the loss stands at the end, backward goes up."
    drawing.text(40, 56, note, fill="#555")
    headings = ((_FORWARD, "forward"), (_BACKWARD, "backward"), (_SIDE, "backward, beside it"))
    for x, text in headings:
        drawing.text(x, _TOP - 16, text, bold=True, size=12)
    _shortcuts(drawing, forward)
    for row, node in enumerate(forward):
        y = _TOP + _ROW * row
        _box(drawing, node, _FORWARD, y, _WIDE)
        drawing.text(_FORWARD - 10, y + 14, node.layer, anchor="end", fill="#555", size=10)
        _partners(drawing, rows[row], y)
    _arrows(drawing, forward, rows)
    return drawing.render()


def _split(result: CompiledGraph) -> tuple[list[ComputeNode], list[ComputeNode]]:
    """Forward nodes up to the loss, and the backward ones after it."""
    nodes = [n for n in result.graph.nodes(_PASSES) if isinstance(n, ComputeNode)]
    loss = next(i for i, n in enumerate(nodes) if n.op.startswith("softmax_cross_entropy"))
    return [n for n in nodes[: loss + 1] if n.op != "copy"], nodes[loss + 1 :]


def _rows_of(
    forward: Sequence[ComputeNode], backward: Sequence[ComputeNode]
) -> list[list[ComputeNode]]:
    """The backward nodes of each forward node: those of the same layer, else of the last row."""
    by_layer = {node.layer: row for row, node in enumerate(forward)}
    rows: list[list[ComputeNode]] = [[] for _ in forward]
    row = len(forward) - 1
    for node in backward:
        row = by_layer.get(node.layer, row)
        rows[row].append(node)
    return rows


def _box(drawing: Drawing, node: ComputeNode, x: float, y: float, width: float) -> None:
    drawing.rectangle(
        x, y, width, _BOX, operation_colour(node.op), stroke="#888", radius=3, tip=str(node)
    )
    label = node.op
    if node.params.get("activation") and not node.op.startswith("activation"):
        label += f" · {node.params['activation']}"
    elif node.op.startswith("activation"):
        label = label.replace("activation", str(node.params["activation"]))
    drawing.text(x + 7, y + 14, label, size=10.5)


def _partners(drawing: Drawing, nodes: Sequence[ComputeNode], y: float) -> None:
    """Backward nodes of a row: the main stream in one column, its companions beside it."""
    main = [n for n in nodes if n.stream is StreamKind.COMP_1]
    beside = [n for n in nodes if n.stream is not StreamKind.COMP_1]
    for x, group in ((_BACKWARD, main), (_SIDE, beside)):
        width = _NARROW / max(len(group), 1)
        for index, node in enumerate(group):
            _box(drawing, node, x + width * index, y, width - 4)
    if main:
        middle = y + _BOX / 2
        drawing.line((_FORWARD + _WIDE, middle), (_BACKWARD, middle), stroke="#ddd", dash="2 3")


def _shortcuts(drawing: Drawing, forward: Sequence[ComputeNode]) -> None:
    """Arcs from the writer of a value to readers that do not follow it directly."""
    writer: dict[Ref, int] = {}
    for row, node in enumerate(forward):
        for ref in node.reads:
            source = writer.get(ref)
            if source is not None and row - source > 1 and ref.region.name.startswith("F_"):
                _arc(drawing, source, row)
        writer.update((ref, row) for ref in node.writes)


def _arc(drawing: Drawing, source: int, target: int) -> None:
    x = _FORWARD - 74.0
    begin, end = (_TOP + _ROW * row + _BOX / 2 for row in (source, target))
    reach = x - min(20.0 + 7.0 * (target - source), 90.0)
    path = f"M{x} {begin:.1f} C{reach:.1f} {begin:.1f} {reach:.1f} {end:.1f} {x} {end:.1f}"
    drawing.path(path, stroke="#b77aa5", width=1.6, arrow=True)


def _arrows(
    drawing: Drawing, forward: Sequence[ComputeNode], rows: Sequence[Sequence[ComputeNode]]
) -> None:
    """Both passes' direction, in the gaps between rows where one really reads the other."""
    makers = [*rows[:-1], [*rows[-1], forward[-1]]]  # the loss makes the first gradient
    for row in range(len(forward) - 1):
        upper, lower = _TOP + _ROW * row + _BOX, _TOP + _ROW * (row + 1)
        if set(forward[row].writes) & set(forward[row + 1].reads):
            x = _FORWARD + _WIDE / 2
            drawing.line((x, upper), (x, lower), stroke="#777", arrow=True)
        above = {ref for node in rows[row] for ref in node.reads}
        below = {ref for node in makers[row + 1] for ref in node.writes}
        if any(ref.region.name.startswith("F_GRAD") for ref in above & below):
            x = _BACKWARD + 60
            drawing.line((x, lower), (x, upper), stroke="#777", arrow=True)
