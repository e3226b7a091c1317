"""The memory map as a picture: every bank a column, its regions to scale."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.core.types import Bank
from renaissance.graph.memory_plan import MemoryPlan, RegionSpan
from renaissance.graph.report.palette import ROLE_NAMES, region_colour
from renaissance.graph.report.svg import Drawing
from renaissance.graph.report.units import human

_TOP, _HEIGHT, _COLUMN, _BAR = 150, 620, 330, 84
_LABEL_STEP = 15.0


def memory_svg(plan: MemoryPlan, title: str) -> str:
    """A drawing of all banks.

    The strip on top shows the banks to one common scale. Each column below shows one bank, its
    regions to the scale of that bank; lines lead from thin regions to their names.
    """
    banks = [bank for bank in Bank if plan.bank_bytes(bank)]
    drawing = Drawing(60 + _COLUMN * len(banks), _TOP + _HEIGHT + 150, title)
    drawing.text(40, 36, title, size=18, bold=True)
    drawing.text(
        40,
        56,
        f"{human(plan.total_bytes)} planned in {len(banks)} banks ({plan.total_bytes:,} bytes)",
    )
    _strip(drawing, plan, banks)
    for index, bank in enumerate(banks):
        _column(drawing, plan, bank, 40 + _COLUMN * index)
    _legend(drawing, plan)
    return drawing.render()


def _strip(drawing: Drawing, plan: MemoryPlan, banks: Sequence[Bank]) -> None:
    """All regions of all banks in one line, to one scale."""
    left, width = 40.0, drawing.width - 80
    scale = width / plan.total_bytes
    for bank in banks:
        for span in _full(plan, bank):
            extent = span.nbytes * scale
            colour = region_colour(span.region)
            drawing.rectangle(left + span.offset * scale, 74, extent, 22, colour, tip=_tip(span))
        extent = plan.bank_bytes(bank) * scale
        drawing.rectangle(left, 74, extent, 22, "none", stroke="#444")
        if extent > 90:
            drawing.text(left + extent / 2, 89, f"{bank.value} bank", anchor="middle")
        left += extent


def _column(drawing: Drawing, plan: MemoryPlan, bank: Bank, left: float) -> None:
    spans, total = _full(plan, bank), plan.bank_bytes(bank)
    drawing.text(left, _TOP - 30, f"{bank.value} bank", size=14, bold=True)
    drawing.text(left, _TOP - 14, f"{human(total)}, one donated array", fill="#555")
    scale = _HEIGHT / total
    middles = [_TOP + (span.offset + span.nbytes / 2) * scale for span in spans]
    for span, middle, label in zip(spans, middles, spread(middles, _TOP, _HEIGHT), strict=True):
        top, extent = _TOP + span.offset * scale, span.nbytes * scale
        colour = region_colour(span.region)
        edge = "#ffffff" if extent > 2 else None
        drawing.rectangle(left, top, _BAR, extent, colour, stroke=edge, tip=_tip(span))
        _slots(drawing, span, left, top, scale)
        drawing.line(
            (left + _BAR, middle),
            (left + _BAR + 12, middle),
            (left + _BAR + 26, label),
            stroke="#bbb",
        )
        drawing.text(left + _BAR + 30, label + 3.5, f"{span.region.name}", size=10.5)
        drawing.text(
            left + _COLUMN - 18,
            label + 3.5,
            human(span.nbytes),
            size=10.5,
            anchor="end",
            fill="#666",
        )
    drawing.rectangle(left, _TOP, _BAR, _HEIGHT, "none", stroke="#444")


def _slots(drawing: Drawing, span: RegionSpan, left: float, top: float, scale: float) -> None:
    """The borders between rotating slots."""
    for nbytes in span.gradient_slots[:-1]:
        top += nbytes * scale
        drawing.line((left, top), (left + _BAR, top), stroke="#ffffff", dash="3 3")


def _legend(drawing: Drawing, plan: MemoryPlan) -> None:
    full = dict.fromkeys(s.region.name[0] for s in plan.regions if s.nbytes)
    regions = {s.region.name[0]: s.region for s in plan.regions if s.nbytes}
    x, y = 40.0, _TOP + _HEIGHT + 40.0
    for letter in full:
        name = ROLE_NAMES[letter]
        if x + 30 + 6.6 * len(name) > drawing.width - 40:
            x, y = 40.0, y + 20
        colour = "#a3d39c" if letter == "F" else region_colour(regions[letter])
        drawing.rectangle(x, y - 10, 12, 12, colour)
        drawing.text(x + 17, y, f"{letter}_  {name}")
        x += 50 + 6.6 * len(name)
    empty = sum(1 for span in plan.regions if not span.nbytes)
    rule = "slots begin at multiples of 256 bytes."
    note = f"{empty} of 68 regions are empty in this configuration; {rule}"
    drawing.text(40, y + 26, note, fill="#555")
    slots = max(len(span.gradient_slots) for span in plan.regions)
    drawing.text(40, y + 44, f"{slots} rotating gradient slots (dashed).", fill="#555")


def spread(middles: Sequence[float], top: float, height: float) -> list[float]:
    """Heights for labels: as near to ``middles`` as they can be without touching each other.

    Labels that would touch form a block around the mean of their wishes, as in isotonic regression.
    """
    blocks: list[tuple[float, int]] = []  # (first label's height, number of labels)
    for middle in middles:
        blocks.append((middle, 1))
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][1] * _LABEL_STEP > blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            merged = (a * m + (b - m * _LABEL_STEP) * n) / (m + n)
            blocks[-2:] = [(merged, m + n)]
    labels = [begin + i * _LABEL_STEP for begin, count in blocks for i in range(count)]
    if not labels:
        return []
    over = max(0.0, labels[-1] - (top + height))
    labels = [label - over for label in labels]
    for index, label in enumerate(labels):  # a block pushed above the top slides down again
        floor = top if index == 0 else labels[index - 1] + _LABEL_STEP
        labels[index] = max(label, floor)
    return labels


def _full(plan: MemoryPlan, bank: Bank) -> list[RegionSpan]:
    return [span for span in plan.regions if span.bank is bank and span.nbytes]


def _tip(span: RegionSpan) -> str:
    return f"{span.region.value} {span.region.name}: {span.nbytes:,} bytes at {span.offset:,}"
