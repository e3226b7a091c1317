"""The train step as a picture: time goes down, one lane a stream."""

from __future__ import annotations

from collections import Counter

from renaissance.core.types import GraphId, StreamKind
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.computation_graph import BESIDE, ONLY_IF_FINITE, SubGraph
from renaissance.graph.report.palette import STREAMS
from renaissance.graph.report.svg import Drawing

_LEFT, _TOP, _LANE, _ROW, _BOX = 40.0, 132.0, 248.0, 58.0, 44.0
_LANES = tuple(StreamKind)


def step_svg(result: CompiledGraph, title: str) -> str:
    """A drawing of the sub-graphs of one train step, in order."""
    rows = _rows(result)
    height = _TOP + _ROW * len(rows) + 70
    drawing = Drawing(2 * _LEFT + _LANE * len(_LANES), height, title)
    drawing.text(_LEFT, 36, title, size=18, bold=True)
    note = "One executable; time goes down. Dashed: changes nothing when a gradient overflowed."
    drawing.text(_LEFT, 56, note, fill="#555")
    for index, stream in enumerate(_LANES):
        x = _LEFT + _LANE * index
        drawing.rectangle(x, _TOP - 40, _LANE - 10, 22, STREAMS[stream], radius=4)
        drawing.text(x + (_LANE - 10) / 2, _TOP - 25, stream.name, anchor="middle", bold=True)
        middle = x + (_LANE - 10) / 2
        drawing.line((middle, _TOP - 10), (middle, height - 60), stroke="#eee", width=2)
    previous: list[tuple[float, float]] = []
    for number, row in enumerate(rows):
        top = _TOP + _ROW * number
        ends = [_box(drawing, result.graph[graph_id], top) for graph_id in row]
        _join(drawing, previous, ends, top)
        previous = ends
    drawing.text(_LEFT, height - 30, "Then slots A and B swap: the next step reads the other one.")
    return drawing.render()


def _rows(result: CompiledGraph) -> list[list[GraphId]]:
    """The order, with what runs beside something in its row; empty sub-graphs left out."""
    rows: list[list[GraphId]] = []
    waiting: list[GraphId] = []
    for graph_id in result.train_order:
        if not len(result.graph[graph_id]):
            continue
        waiting.append(graph_id)
        if graph_id not in BESIDE:
            rows.append(waiting)
            waiting = []
    return rows


def _box(drawing: Drawing, graph: SubGraph, top: float) -> tuple[float, float]:
    """Draw a sub-graph over the lanes its nodes use; where arrows meet it, in x."""
    lanes = [_LANES.index(node.stream) for node in graph]
    first, last = min(lanes), max(lanes)
    x, width = _LEFT + _LANE * first, _LANE * (last - first + 1) - 10
    main = Counter(node.stream for node in graph).most_common(1)[0][0]
    dash = "5 3" if graph.id in ONLY_IF_FINITE else None
    drawing.rectangle(
        x, top, width, _BOX, STREAMS[main], stroke="#555", radius=5, dash=dash, tip=_tip(graph)
    )
    drawing.text(x + 9, top + 18, graph.id.name, bold=True, size=10.5 if width < 300 else 11.5)
    drawing.text(x + 9, top + 34, _summary(graph, width), size=10, fill="#333")
    # arrows meet a box on its main lane
    middle = _LEFT + _LANE * _LANES.index(main) + (_LANE - 10) / 2
    return middle, top


def _summary(graph: SubGraph, width: float) -> str:
    names = list(dict.fromkeys(node.op for node in graph))
    if len(graph) <= 2:
        text = " → ".join(node.op for node in graph)
    else:
        text = f"{len(graph)} nodes in {len(graph.stages)} stages: " + ", ".join(names)
    most = int(width / 6)
    return text if len(text) <= most else text[: most - 1] + "…"


def _tip(graph: SubGraph) -> str:
    shown = [str(node) for node in graph.nodes[:20]]
    more = len(graph) - len(shown)
    return "\n".join([*shown, *([f"... and {more} more"] if more > 0 else [])])


def _join(
    drawing: Drawing,
    before: list[tuple[float, float]],
    after: list[tuple[float, float]],
    top: float,
) -> None:
    """Arrows from the boxes of one row to those of the next: forks and joins between lanes."""
    for x1, y1 in before:
        for x2, _ in after:
            begin, bend = y1 + _BOX, top - (_ROW - _BOX) / 2
            drawing.line((x1, begin), (x1, bend), (x2, bend), (x2, top), stroke="#777", arrow=True)
