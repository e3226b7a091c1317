"""ResNet (He et al. 2015); in the bottleneck the stride sits on the 3x3 convolution."""

from __future__ import annotations

from renaissance.graph.blueprint import (
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    BluePrint,
    Layer,
    block,
    cbr,
    cbrp,
    gap_fc,
    repeat,
    seq,
)
from renaissance.graph.blueprint.checked import factory


def _stem(style: str) -> Layer:
    """First layers: for 224x224 images, or for 32x32 ones, where nothing is downsampled."""
    match style:
        case "imagenet":
            return cbrp(64, 7, 2, 3, 3, 2, 1)
        case "cifar":
            return cbr(64, 3, 1, 1)
    raise ValueError(f"ResNet stem is {style!r}, expected 'imagenet' or 'cifar'")


@factory
def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> BluePrint:
    """Basic blocks, 2-2-2-2. ``stem`` is ``"imagenet"`` or ``"cifar"``."""
    net = seq(
        _stem(stem),
        repeat(block(64, RESNET_3_3), 2),
        repeat(block(128, RESNET_3_3_DS), 2),
        repeat(block(256, RESNET_3_3_DS), 2),
        repeat(block(512, RESNET_3_3_DS), 2),
        gap_fc(num_classes, True),
    )
    return BluePrint(net, "resnet18")


@factory
def resnet34(num_classes: int = 1000, stem: str = "imagenet") -> BluePrint:
    """Basic blocks, 3-4-6-3. ``stem`` is ``"imagenet"`` or ``"cifar"``."""
    net = seq(
        _stem(stem),
        repeat(block(64, RESNET_3_3), 3),
        repeat(block(128, RESNET_3_3_DS), 4),
        repeat(block(256, RESNET_3_3_DS), 6),
        repeat(block(512, RESNET_3_3_DS), 3),
        gap_fc(num_classes, True),
    )
    return BluePrint(net, "resnet34")


@factory
def resnet50(num_classes: int = 1000, stem: str = "imagenet") -> BluePrint:
    """Bottlenecks, 3-4-6-3. ``stem`` is ``"imagenet"`` or ``"cifar"``."""
    net = seq(
        _stem(stem),
        repeat(block(64, 256, RESNET_1_3_1), 3),
        repeat(block(128, 512, RESNET_1_3_1_DS), 4),
        repeat(block(256, 1024, RESNET_1_3_1_DS), 6),
        repeat(block(512, 2048, RESNET_1_3_1_DS), 3),
        gap_fc(num_classes, True),
    )
    return BluePrint(net, "resnet50")
