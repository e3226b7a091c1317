"""Value: a tensor flowing through the network while its graph is traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.memory_plan.requirement import ShapeRule


@dataclass(frozen=True, slots=True)
class Derivative:
    """An activation whose derivative the next layer's data gradient can apply in its epilogue.

    Attributes:
        activation: Kind of the activation.
        role: ``"y"`` or ``"z"``: whether the derivative is read off its output or its input.
        ref: That tensor.
        layer: The layer before the activation; its gradient is what comes out.
    """

    activation: str
    role: str
    ref: Ref
    layer: str


@dataclass(frozen=True, slots=True)
class PendingNorm:
    """A batch norm whose statistics are known but which is not applied yet.

    Attributes:
        layer: The batch norm.
        operands: gamma, beta, mean, inverse_std by role.
    """

    layer: ArchLayer
    operands: Mapping[str, Value | Ref | None]


@dataclass(eq=False, slots=True)
class Value:
    """A tensor and what is known of its gradient.

    Attributes:
        ref: The planned tensor.
        name: The layer that made it; its gradient is named after it.
        shape: Shape rule of tensor and gradient.
        needs_gradient: Whether a weight lies upstream.
        consumers: Layers that read it in the forward pass: as many gradients will come.
        gradients: How many came already.
        gradient: Their sum so far.
        takes_addend: Whether the layer that made it can be given the last gradient beside the sum
            of the others, and adds it in a pass over memory that it makes anyway.
        addend: That gradient.
        derivative: Set when the gradient may be delivered before the activation that made it.
        is_linear_gradient: Whether it was delivered so.
        pending: Set when it is a convolution's output that waits for its batch norm.
        deferred: In inference, a convolution not emitted yet: it may still take a shortcut along.
    """

    ref: Ref
    name: str
    shape: ShapeRule
    needs_gradient: bool
    consumers: int = 0
    gradients: int = 0
    gradient: Ref | None = None
    takes_addend: bool = False
    addend: Ref | None = None
    derivative: Derivative | None = None
    is_linear_gradient: bool = False
    pending: PendingNorm | None = None
    deferred: dict[str, Any] | None = field(default=None)
