"""A plan as a PyTorch module: the same layers, weights and order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.layer import ArchLayer

_ACTIVATIONS: dict[str, Any] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class TorchNet(nn.Module):
    """The primitive layers of a plan, run with the same residual stack."""

    def __init__(self, plan: ArchPlan, weights: Mapping[str, np.ndarray]):
        """
        Args:
            plan: The network.
            weights: Every trainable tensor by full name, in our layouts.
        """
        super().__init__()
        self.steps = [layer for layer in plan.primitives() if layer.kind not in _DROPPED]
        self.layers = nn.ModuleDict()
        for layer in self.steps:
            module = _module(layer)
            if module is not None:
                self.layers[layer.name] = module
        self.load(weights)

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Copy weights in."""
        with torch.no_grad():
            for name, value in weights.items():
                self.tensor(name).copy_(torch.from_numpy(to_torch(name, value)))

    def tensor(self, name: str) -> Tensor:
        """The parameter of one of our names."""
        layer, local = name.rsplit(".", 1)
        return getattr(self.layers[layer], local)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, classes) of NCHW images."""
        inputs: list[Tensor] = []
        shortcuts: list[Tensor] = []
        for layer in self.steps:
            if layer.kind == "add2_start":
                inputs.append(x)
            elif layer.kind == "add2_shortcut_end":
                shortcuts.append(x)
                x = inputs.pop()
            elif layer.kind == "add2_end":
                x = x + shortcuts.pop()
            else:
                x = self._run_layer(layer, x)
        return x

    def _run_layer(self, layer: ArchLayer, x: Tensor) -> Tensor:
        if layer.name in self.layers:
            return self.layers[layer.name](x)
        if layer.kind in _ACTIVATIONS:
            return _ACTIVATIONS[layer.kind](x)
        if layer.kind == "gap":
            return x.mean((2, 3), keepdim=True)
        if layer.kind == "flatten":
            return x.permute(0, 2, 3, 1).flatten(1)
        raise ValueError(f"layer kind is {layer.kind!r}, expected one that PyTorch has")


_DROPPED = ("identity", "softmax_cross_entropy", "channel_padding")


def _module(layer: ArchLayer) -> nn.Module | None:
    p, width = layer.params, layer.in_shape.c
    if layer.kind == "conv":
        return nn.Conv2d(width, p.out, p.kernel, p.stride, p.pad, bias=False)
    if layer.kind == "conv_dw":
        return nn.Conv2d(width, width, p.kernel, p.stride, p.pad, groups=width, bias=False)
    if layer.kind == "group_conv":
        return nn.Conv2d(width, p.out, p.kernel, p.stride, p.pad, groups=p.groups, bias=False)
    if layer.kind in ("bn1d", "bn2d"):
        norm = nn.BatchNorm2d if layer.kind == "bn2d" else nn.BatchNorm1d
        return norm(width, eps=p.eps, momentum=p.momentum)
    if layer.kind == "fc":
        return _Fc(layer.in_shape.size, p.out, bias=p.bias)
    if layer.kind == "maxpool":
        return nn.MaxPool2d(p.kernel, p.stride, p.pad)
    if layer.kind == "avgpool":
        return nn.AvgPool2d(p.kernel, p.stride, p.pad, count_include_pad=False)
    if layer.kind == "dropout":
        return nn.Dropout(p.p)
    return None


class _Fc(nn.Linear):
    """Linear on the flattened map; after global pooling that is (N, C, 1, 1)."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, out)."""
        return super().forward(x.flatten(1))


def to_torch(name: str, value: np.ndarray) -> np.ndarray:
    """KRSC to KCRS; everything else keeps its layout."""
    return np.ascontiguousarray(value.transpose(0, 3, 1, 2)) if value.ndim == 4 else value


def from_torch(name: str, value: Tensor) -> np.ndarray:
    """Inverse of :func:`to_torch`."""
    array = value.detach().float().cpu().numpy()
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
