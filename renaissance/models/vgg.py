"""VGG with batch norm (Simonyan and Zisserman 2014)."""

from __future__ import annotations

from renaissance.graph.blueprint import (
    BluePrint,
    cbr,
    cbrp,
    dropout,
    fc,
    flatten,
    relu,
    repeat,
    seq,
)
from renaissance.graph.blueprint.checked import factory


@factory
def vgg16_bn(num_classes: int = 1000, drop: float = 0.5, width: int = 4096) -> BluePrint:
    """Thirteen 3x3 convolutions in five stages, three fully connected layers; for 224x224 images.

    Args:
        num_classes: Outputs of the last layer.
        drop: Dropout after each of the two wide layers.
        width: Of these two layers.
    """
    stages = [
        layer
        for out, convs in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
        for layer in (repeat(cbr(out, 3, 1, 1), convs - 1), cbrp(out, 3, 1, 1, 2, 2, 0))
    ]
    classifier = repeat(seq(fc(width), relu(), dropout(drop)), 2)
    return BluePrint(seq(*stages, flatten(), classifier, fc(num_classes)), "vgg16_bn")
