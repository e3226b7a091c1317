"""The models by name, for the command line and for sweeps over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from renaissance.graph.blueprint import BluePrint
from renaissance.models.lenet import lenet
from renaissance.models.mlp import mlp
from renaissance.models.mobilenet import mobilenet_v2
from renaissance.models.nin import nin
from renaissance.models.resnet import resnet18, resnet34, resnet50
from renaissance.models.vgg import vgg16_bn

_DIGITS, _SMALL, _LARGE = (28, 28, 1), (32, 32, 3), (224, 224, 3)

_CATALOGUE: dict[str, tuple[Callable[..., BluePrint], tuple[int, int, int]]] = {
    "mlp": (mlp, _DIGITS),
    "lenet": (lenet, _DIGITS),
    "nin": (nin, _SMALL),
    "vgg16_bn": (vgg16_bn, _LARGE),
    "resnet18": (resnet18, _LARGE),
    "resnet34": (resnet34, _LARGE),
    "resnet50": (resnet50, _LARGE),
    "mobilenet_v2": (mobilenet_v2, _LARGE),
}


def names() -> tuple[str, ...]:
    """Names that :func:`by_name` knows."""
    return tuple(_CATALOGUE)


def by_name(name: str, **options: Any) -> BluePrint:
    """The model of a name, ``by_name("resnet18", num_classes=10, stem="cifar")``.

    Raises:
        ValueError: The name is unknown; the message lists the known ones.
        TypeError: The model has no such option; the message shows those it has.
    """
    return _entry(name)[0](**options)


def default_input_shape(name: str, stem: str = "imagenet") -> tuple[int, int, int]:
    """``(H, W, C)`` of the images that a model is made for; the CIFAR stem is for 32x32."""
    return _SMALL if stem == "cifar" else _entry(name)[1]


def _entry(name: str) -> tuple[Callable[..., BluePrint], tuple[int, int, int]]:
    if name not in _CATALOGUE:
        raise ValueError(f"model is {name!r}, expected one of {', '.join(_CATALOGUE)}")
    return _CATALOGUE[name]
