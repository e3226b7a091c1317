"""Network in network (Lin et al. 2013), with batch norm."""

from __future__ import annotations

from renaissance.graph.blueprint import BluePrint, avgpool, cbr, dropout, gap, maxpool, seq
from renaissance.graph.blueprint.checked import factory


@factory
def nin(num_classes: int = 10) -> BluePrint:
    """Three convolutions, each followed by two of 1x1; made for 32x32 images."""
    net = seq(
        *(cbr(192, 5, 1, 2), cbr(160, 1, 1, 0), cbr(96, 1, 1, 0), maxpool(3, 2, 1), dropout(0.5)),
        *(cbr(192, 5, 1, 2), cbr(192, 1, 1, 0), cbr(192, 1, 1, 0), avgpool(3, 2, 1), dropout(0.5)),
        *(cbr(192, 3, 1, 1), cbr(192, 1, 1, 0), cbr(num_classes, 1, 1, 0), gap()),
    )
    return BluePrint(net, "nin")
