"""Multilayer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.graph.blueprint import BluePrint, fc, flatten, relu, seq
from renaissance.graph.blueprint.checked import factory


@factory
def mlp(num_classes: int = 10, hidden: Sequence[int] = (1024, 512, 256)) -> BluePrint:
    """Fully connected layers with ReLU between; made for 28x28 digits.

    Args:
        num_classes: Outputs of the last layer.
        hidden: Widths of the layers before it.
    """
    inner = [layer for width in hidden for layer in (fc(width), relu())]
    return BluePrint(seq(flatten(), *inner, fc(num_classes)), "mlp")
