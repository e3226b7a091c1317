"""LeNet-5 (LeCun et al. 1998), convolutions without bias."""

from __future__ import annotations

from renaissance.graph.blueprint import BluePrint, avgpool, conv, fc, flatten, seq, tanh_act
from renaissance.graph.blueprint.checked import factory


@factory
def lenet(num_classes: int = 10) -> BluePrint:
    """Two convolutions and three fully connected layers; made for 28x28 digits."""
    net = seq(
        *(conv(6, 5, 1, 2), tanh_act(), avgpool(2, 2, 0)),
        *(conv(16, 5), tanh_act(), avgpool(2, 2, 0)),
        *(flatten(), fc(120), tanh_act(), fc(84), tanh_act(), fc(num_classes)),
    )
    return BluePrint(net, "lenet")
