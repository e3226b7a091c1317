"""What a tensor asks of the memory plan, before anything is placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from renaissance.core.types import DType, Shape, Variant
from renaissance.graph.computation_graph.operands import Ref


@dataclass(frozen=True, slots=True)
class VariantShapes:
    """The shapes of one variant, batch included.

    Attributes:
        variant: Which one.
        input: The batch of images as it lies in the input slot (channels padded under AMP).
        inputs: Input of every primitive layer, by name.
        outputs: Output of every primitive layer, by name.
    """

    variant: Variant
    input: Shape
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self.input.n


ShapeRule = tuple[int, ...] | Callable[[VariantShapes], tuple[int, ...]]
"""A tensor's shape: the same in all variants, or made from the variant's shapes."""


class Scope(Enum):
    """The variants a tensor exists in."""

    TRAIN = "train"
    INFERENCE = "inference"
    ALWAYS = "always"

    def covers(self, variant: Variant) -> bool:
        """Whether the tensor exists in a variant."""
        return self is Scope.ALWAYS or (self is Scope.TRAIN) == variant.is_training


@dataclass(frozen=True, slots=True)
class Requirement:
    """A tensor the network needs.

    Attributes:
        ref: Region and name.
        dtype: Element type.
        shape: Its shape, or how to make it from a variant's shapes.
        scope: The variants it exists in.
        slot_elements: Slots are a multiple of this many elements. Weights with fp16 twins take 128,
            so that twins of both widths start at equal element offsets and at 256 bytes.
    """

    ref: Ref
    dtype: DType
    shape: ShapeRule
    scope: Scope = Scope.ALWAYS
    slot_elements: int = 1


def input_of(layer: str) -> ShapeRule:
    """The shape a layer is given."""
    return lambda shapes: shapes.inputs[layer]


def output_of(layer: str) -> ShapeRule:
    """The shape a layer makes."""
    return lambda shapes: shapes.outputs[layer]


def per_row(*columns: int) -> ShapeRule:
    """One entry, or one vector, for each row of the batch."""
    return lambda shapes: (shapes.rows, *columns)
