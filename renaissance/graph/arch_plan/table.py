"""The plan as a table for eyes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from renaissance.core.types import Shape
from renaissance.graph.descriptors.residual import ADD2_END, ADD2_SHORTCUT_END, ADD2_START
from renaissance.graph.layer import ArchLayer
from renaissance.graph.registry import descriptor_of

if TYPE_CHECKING:
    from renaissance.graph.arch_plan.plan import ArchPlan

HEADER = ("layer", "kind", "input", "output", "parameters", "FLOPs")

MAX_INDENT = 20


def parameters_of(layer: ArchLayer) -> int:
    """Trainable values of a layer, all parts of a merged one included."""
    return sum(
        prod(spec.shape)
        for part in layer.primitives()
        for spec in descriptor_of(part.kind).weights(part)
    )


def table(plan: ArchPlan) -> str:
    """One row a layer: name, kind, input and output map, parameters, FLOPs; totals at the end.

    Rows between the markers of a residual add are indented. FLOPs are those of one sample's
    forward pass, a multiply-add counted as two.
    """
    rows = [HEADER, *_rows(plan)]
    total = ("total", "", "", "", f"{plan.parameter_count:,}", f"{plan.flops:,}")
    widths = [max(map(len, column)) for column in zip(*rows, total, strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [_line(row, widths) for row in rows]
    return "\n".join([_title(plan), "", lines[0], rule, *lines[1:], rule, _line(total, widths)])


def _title(plan: ArchPlan) -> str:
    stored = plan.stored_input_shape
    padded = "" if stored == plan.input_shape else f" (in memory {_map(stored)})"
    form = "fused" if plan.fused else "unfused"
    precision = "fp16 AMP" if plan.amp else "fp32"
    return (
        f"{plan.name or 'model'}: input {_map(plan.input_shape)}{padded}, "
        f"{plan.num_classes} classes, {precision}, {form}"
    )


def _rows(plan: ArchPlan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    depth = 0
    for layer in plan.layers:
        depth -= layer.kind in (ADD2_SHORTCUT_END, ADD2_END)
        parameters, flops = parameters_of(layer), descriptor_of(layer.kind).flops(layer)
        rows.append(
            (
                "  " * min(depth, MAX_INDENT) + layer.name,
                layer.kind,
                _map(layer.in_shape),
                _map(layer.out_shape),
                f"{parameters:,}" if parameters else "",
                f"{flops:,}" if flops else "",
            )
        )
        depth += layer.kind in (ADD2_START, ADD2_SHORTCUT_END)
    return rows


def _map(shape: Shape) -> str:
    return f"{shape.h}x{shape.w}x{shape.c}" if shape.is_spatial else str(shape.c)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(left + right).rstrip()
