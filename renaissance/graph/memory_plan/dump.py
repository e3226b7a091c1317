"""A layout as text."""

from __future__ import annotations

from collections.abc import Mapping

from renaissance.graph.computation_graph.operands import Ref
from renaissance.graph.memory_plan.layout import Layout
from renaissance.tensor.dtensor import DTensor


def dump_layout(layout: Layout, tensors: Mapping[Ref, DTensor]) -> str:
    """Every region with its tensors: offset in the bank, bytes, shape, dtype, stages alive."""
    by_region: dict[int, list[tuple[Ref, DTensor]]] = {}
    for ref, tensor in tensors.items():
        by_region.setdefault(ref.region, []).append((ref, tensor))
    lines = []
    for region, span in layout.spans.items():
        extent = f"{span.bank.value:<10} {span.offset:>15,} {span.nbytes:>15,}"
        lines.append(f"{region.value:>2} {region.name:<22} {extent}")
        members = by_region.get(region, [])
        for ref, tensor in sorted(members, key=lambda m: (m[1].offset, m[1].id)):
            shape = "x".join(map(str, tensor.shape))
            life = layout.lives.get(ref)
            when = "" if life is None else f"  stages {life.begin}..{life.end}"
            lines.append(
                f"     {tensor.name:<32} {tensor.offset:>15,} {tensor.slot_bytes:>15,}"
                f"  {tensor.dtype.value} {shape}{when}"
            )
    return "\n".join(lines)
