"""All pictures of a compiled network, written into a folder."""

from __future__ import annotations

from pathlib import Path

from renaissance.core.types import GraphId, Variant
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.report.graph_svg import graph_svg
from renaissance.graph.report.lifetime_svg import lifetime_svg
from renaissance.graph.report.memory_svg import memory_svg
from renaissance.graph.report.step_svg import step_svg


def pictures(result: CompiledGraph, name: str) -> dict[str, str]:
    """The pictures as SVG text, by file name.

    Args:
        result: A compiled network.
        name: How to call the network in headings.
    """
    plan = result.memory[Variant.TRAIN_BASE]
    options = result.options
    precision = "AMP" if options.amp else "fp32"
    subject = f"{name}, {plan.shape_id}, {precision}{', fused' if options.fuse else ''}"
    backward, inference = _phase_begins(result)
    return {
        "memory.svg": memory_svg(plan, f"Memory map of {subject}"),
        "lifetimes.svg": lifetime_svg(plan, f"Reuse of memory in {subject}", backward, inference),
        "step.svg": step_svg(result, f"Train step of {subject}"),
        "graph.svg": graph_svg(result, f"Forward and backward of {subject}"),
    }


def write_pictures(result: CompiledGraph, name: str, folder: Path) -> list[Path]:
    """Write all pictures; the folder is made if it is missing.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for file_name, text in pictures(result, name).items():
        path = folder / file_name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _phase_begins(result: CompiledGraph) -> tuple[int, int]:
    """First stage of the backward pass and of inference, on the memory plan's clock."""
    first = len(result.graph[GraphId.FIRST_LAYER_FWD_A].stages)
    deep = result.graph[GraphId.DEEP_FWD_BWD]
    loss = next(
        stage
        for stage, node in zip(deep.stage_of, deep.nodes, strict=True)
        if node.op.startswith("softmax_cross_entropy")
    )
    last = len(result.graph[GraphId.FIRST_LAYER_BWD_A].stages)
    return first + loss + 1, first + len(deep.stages) + last + 1
