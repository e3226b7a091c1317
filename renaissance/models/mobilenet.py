"""MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

from renaissance.graph.blueprint import (
    BluePrint,
    Layer,
    bn,
    conv,
    dropout,
    fc,
    gap,
    mbconv,
    relu6,
    repeat,
    seq,
)
from renaissance.graph.blueprint.checked import factory


def _conv_bn_relu6(out: int, k: int, s: int, p: int) -> Layer:
    return seq(conv(out, k, s, p), bn(), relu6())


@factory
def mobilenet_v2(num_classes: int = 1000, drop: float = 0.2) -> BluePrint:
    """Inverted residuals of expansion 6; made for 224x224 images.

    Args:
        num_classes: Outputs of the last layer.
        drop: Dropout before it.
    """
    net = seq(
        _conv_bn_relu6(32, 3, 2, 1),
        mbconv(1, 16, 1),
        repeat(mbconv(6, 24, 2), 2),
        repeat(mbconv(6, 32, 2), 3),
        repeat(mbconv(6, 64, 2), 4),
        repeat(mbconv(6, 96, 1), 3),
        repeat(mbconv(6, 160, 2), 3),
        mbconv(6, 320, 1),
        _conv_bn_relu6(1280, 1, 1, 0),
        *(gap(), dropout(drop), fc(num_classes)),
    )
    return BluePrint(net, "mobilenet_v2")
