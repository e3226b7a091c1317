"""Replacing runs of primitives by the merged layer that stands for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from renaissance.graph.arch_plan.expand import numbered
from renaissance.graph.descriptors.activation import ACTIVATIONS
from renaissance.graph.layer import ArchLayer

Parts = Sequence[ArchLayer]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A run of primitives that one merged kind can replace.

    Attributes:
        kind: The merged kind.
        words: What to look for: kinds, and ``conv1x1``, ``conv3x3``, ``conv_dw3x3`` for a
            convolution of that filter that keeps the map's size at stride 1.
        params: ``parts -> record`` of the merged layer, or None where the numbers do not fit it.
        linear: Whether no activation may follow the run.
    """

    kind: str
    words: tuple[str, ...]
    params: Callable[[Parts], Any | None]
    linear: bool = False

    def match(self, layers: Sequence[ArchLayer], start: int) -> Any | None:
        """Parameters of the merged layer that can begin at ``start``, or None."""
        end = start + len(self.words)
        if end > len(layers):
            return None
        if not all(is_called(layers[start + i], word) for i, word in enumerate(self.words)):
            return None
        if self.linear and end < len(layers) and layers[end].kind in ACTIVATIONS:
            return None
        return self.params(layers[start:end])


def is_called(layer: ArchLayer, word: str) -> bool:
    """Whether a layer goes by a word of a pattern."""
    if word == layer.kind:
        return True
    if layer.kind not in ("conv", "conv_dw") or not word.startswith(layer.kind):
        return False
    kernel, pad = layer.params.kernel, layer.params.pad
    return word == f"{layer.kind}{kernel}x{kernel}" and 2 * pad == kernel - 1


def merge(layers: Sequence[ArchLayer], *patterns: Pattern) -> list[ArchLayer]:
    """Replace, from the front, every run that matches a pattern; earlier patterns win."""
    merged: list[ArchLayer] = []
    numbers: Counter[str] = Counter()
    position = 0
    while position < len(layers):
        found = _first_match(layers, position, patterns)
        if found is None:
            merged.append(layers[position])
            position += 1
            continue
        pattern, params = found
        numbers[pattern.kind] += 1
        name = numbered(pattern.kind, numbers[pattern.kind])
        parts = tuple(layers[position : position + len(pattern.words)])
        merged.append(_stand_for(parts, pattern.kind, params, name))
        position += len(parts)
    return merged


def _first_match(
    layers: Sequence[ArchLayer], position: int, patterns: Sequence[Pattern]
) -> tuple[Pattern, Any] | None:
    for pattern in patterns:
        params = pattern.match(layers, position)
        if params is not None:
            return pattern, params
    return None


def _stand_for(parts: tuple[ArchLayer, ...], kind: str, params: Any, name: str) -> ArchLayer:
    return ArchLayer(
        kind=kind,
        params=params,
        name=name,
        in_shape=parts[0].in_shape,
        out_shape=parts[-1].out_shape,
        source_id=parts[0].source_id,
        parts=parts,
    )
