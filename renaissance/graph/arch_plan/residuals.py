"""Step 7: residual blocks, whoever wrote them, become one layer each."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.graph.arch_plan.merging import Parts, Pattern, merge
from renaissance.graph.layer import ArchLayer
from renaissance.graph.params import BasicBlock, Bottleneck, InvertedResidual


def merge_residuals(layers: Sequence[ArchLayer]) -> list[ArchLayer]:
    """Step 7: merge bottlenecks, basic blocks and inverted residuals.

    A block is recognised by its primitives, so one written with ``block(...)`` and one written by
    hand with ``add2(...)``, ``conv``, ``bn`` and ``relu`` are merged alike.
    """
    return merge(layers, *PATTERNS)


# --- parameters of the merged layer; None where the block is not of that form ---------------------


def _bottleneck(parts: Parts) -> Bottleneck | None:
    *shortcut, narrow, middle, widen = _convolutions(parts)
    mid, out, stride = narrow.params.out, widen.params.out, middle.params.stride
    fits = (
        narrow.params.stride == widen.params.stride == 1
        and middle.params.out == mid
        and _shortcut_stride(shortcut) == stride
    )
    return Bottleneck(mid, out, stride) if fits else None


def _basic_block(parts: Parts) -> BasicBlock | None:
    *shortcut, first, second = _convolutions(parts)
    out, stride = second.params.out, first.params.stride
    fits = (
        second.params.stride == 1
        and first.params.out == out
        and _shortcut_stride(shortcut) == stride
    )
    return BasicBlock(out, stride) if fits else None


def _inverted_residual(parts: Parts) -> InvertedResidual | None:
    *widen, depthwise, narrow = _convolutions(parts)
    width, hidden = parts[0].in_shape.c, depthwise.in_shape.c
    expand, stride = hidden // width, depthwise.params.stride
    fits = (
        hidden == expand * width
        and (expand > 1) == bool(widen)
        and all(conv.params.stride == 1 for conv in (*widen, narrow))
    )
    return InvertedResidual(expand, narrow.params.out, stride) if fits else None


def _inverted_residual_with_identity(parts: Parts) -> InvertedResidual | None:
    params = _inverted_residual(parts)
    return params if params is not None and params.stride == 1 else None


def _convolutions(parts: Parts) -> list[ArchLayer]:
    return [part for part in parts if part.kind in ("conv", "conv_dw")]


def _shortcut_stride(shortcut: list[ArchLayer]) -> int:
    return shortcut[0].params.stride if shortcut else 1


# --- what the blocks look like on the flat list --------------------------------------------------

_PROJECTION = ("conv1x1", "bn2d")
_BOTTLENECK = ("conv1x1", "bn2d", "relu", "conv3x3", "bn2d", "relu", "conv1x1", "bn2d")
_BASIC = ("conv3x3", "bn2d", "relu", "conv3x3", "bn2d")
_DEPTHWISE = ("conv_dw3x3", "bn2d", "relu6", "conv1x1", "bn2d")
_INVERTED = ("conv1x1", "bn2d", "relu6", *_DEPTHWISE)


def _add(shortcut: tuple[str, ...], main: tuple[str, ...]) -> tuple[str, ...]:
    return "add2_start", *shortcut, "add2_shortcut_end", *main, "add2_end"


PATTERNS = (
    Pattern("bottleneck_projection", (*_add(_PROJECTION, _BOTTLENECK), "relu"), _bottleneck),
    Pattern("bottleneck_identity", (*_add((), _BOTTLENECK), "relu"), _bottleneck),
    Pattern("basic_block_projection", (*_add(_PROJECTION, _BASIC), "relu"), _basic_block),
    Pattern("basic_block_identity", (*_add((), _BASIC), "relu"), _basic_block),
    Pattern("inv_residual_identity", _add((), _INVERTED), _inverted_residual_with_identity),
    Pattern("inv_residual_identity", _add((), _DEPTHWISE), _inverted_residual_with_identity),
    Pattern("inv_residual_no_shortcut", _INVERTED, _inverted_residual, linear=True),
    Pattern("inv_residual_no_shortcut", _DEPTHWISE, _inverted_residual, linear=True),
)
