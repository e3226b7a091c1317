"""The networks of the framework as blueprints.

>>> from renaissance import models
>>> models.resnet50(num_classes=10).name
'resnet50'
>>> models.by_name("resnet18", stem="cifar") == models.resnet18(stem="cifar")
True
"""

from __future__ import annotations

from renaissance.models.catalogue import by_name, default_input_shape, names
from renaissance.models.lenet import lenet
from renaissance.models.mlp import mlp
from renaissance.models.mobilenet import mobilenet_v2
from renaissance.models.nin import nin
from renaissance.models.resnet import resnet18, resnet34, resnet50
from renaissance.models.vgg import vgg16_bn

__all__ = [
    "by_name",
    "default_input_shape",
    "lenet",
    "mlp",
    "mobilenet_v2",
    "names",
    "nin",
    "resnet18",
    "resnet34",
    "resnet50",
    "vgg16_bn",
]
