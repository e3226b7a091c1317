"""Who lies where and when: address against time for every region whose bytes are reused."""

from __future__ import annotations

from colorsys import hls_to_rgb

from renaissance.core.types import Region
from renaissance.graph.computation_graph import Ref
from renaissance.graph.memory_plan import REUSED_REGIONS, MemoryPlan
from renaissance.graph.report.svg import Drawing
from renaissance.graph.report.units import human

_LEFT, _WIDTH, _GAP = 150.0, 1050.0, 46.0
_TALLEST, _FLATTEST = 520.0, 70.0


def lifetime_svg(plan: MemoryPlan, title: str, backward_begins: int, inference_begins: int) -> str:
    """A drawing of all reused regions.

    Args:
        plan: The plan.
        title: Heading.
        backward_begins: First stage of the backward pass.
        inference_begins: First stage of inference, which takes over training's bytes.
    """
    regions = [s for s in plan.regions if s.region in REUSED_REGIONS and s.nbytes]
    end = max(life.end for life in plan.layout.lives.values()) + 1
    most = max(span.nbytes for span in regions)
    heights = [max(_FLATTEST, _TALLEST * span.nbytes / most) for span in regions]
    total = 120 + sum(heights) + _GAP * len(heights) + 30
    drawing = Drawing(_LEFT + _WIDTH + 40, total, title)
    drawing.text(40, 36, title, size=18, bold=True)
    note = "Each rectangle is a tensor: its bytes (down) over the stages it is alive in (across)."
    drawing.text(40, 56, note, fill="#555")
    scale = _WIDTH / end
    top = 104.0
    _phases(drawing, top, total - 40, scale, (0, backward_begins, inference_begins, end))
    for span, height in zip(regions, heights, strict=True):
        _region(drawing, plan, span.region, top, height, scale, end)
        top += height + _GAP
    return drawing.render()


def _phases(
    drawing: Drawing, top: float, bottom: float, scale: float, begins: tuple[int, int, int, int]
) -> None:
    names = ("forward", "backward", "inference")
    for name, begin, end in zip(names, begins, begins[1:], strict=False):
        x = _LEFT + begin * scale
        drawing.line((x, top - 18), (x, bottom), stroke="#bbb", dash="2 4")
        if (end - begin) * scale > 60:
            drawing.text(x + 5, top - 10, name, fill="#555")


def _region(
    drawing: Drawing,
    plan: MemoryPlan,
    region: Region,
    top: float,
    height: float,
    scale: float,
    end: int,
) -> None:
    span = plan.region(region)
    drawing.text(_LEFT - 12, top + 14, region.name, anchor="end", bold=True, size=10.5)
    drawing.text(_LEFT - 12, top + 30, human(span.nbytes), anchor="end", fill="#555", size=10.5)
    used = f"of {human(span.tensor_bytes)}"
    drawing.text(_LEFT - 12, top + 45, used, anchor="end", fill="#999", size=10.5)
    per_byte = height / span.nbytes
    for ref, slot in plan.layout.slots.items():
        life = plan.layout.lives.get(ref)
        if ref.region is not region or life is None or ref in plan.layout.tenants:
            continue
        offset = plan.layout.offsets[ref] - span.offset
        drawing.rectangle(
            _LEFT + life.begin * scale,
            top + offset * per_byte,
            (life.end - life.begin + 1) * scale,
            slot.nbytes * per_byte,
            _hue(life.begin / end),
            stroke="#ffffff" if slot.nbytes * per_byte > 3 else None,
            tip=_tip(ref, slot.nbytes, life.begin, life.end),
        )
    drawing.rectangle(_LEFT, top, _WIDTH, height, "none", stroke="#888")


def _hue(position: float) -> str:
    """Rainbow over time, so that neighbours in time look alike and take-overs stand out."""
    red, green, blue = hls_to_rgb(0.62 - 0.75 * position, 0.72, 0.55)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in (red, green, blue))


def _tip(ref: Ref, nbytes: int, begin: int, end: int) -> str:
    return f"{ref.name}: {nbytes:,} bytes, stages {begin} to {end}"
