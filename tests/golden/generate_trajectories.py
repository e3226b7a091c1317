"""Training runs of three small networks in PyTorch on the CPU, in fp64.

Run once, in an environment with ``torch`` and ``numpy``, from the root of the repository::

    PYTHONPATH=. python tests/golden/generate_trajectories.py

One file per network, one case per optimizer: the loss of every step, all weights and running
statistics after the first step (fp32) and after the last (fp64), and for the first optimizer the
gradients of the first step. Weights, images and labels are drawn by name and number, and so not
stored.

The networks are written out on plain tensors; a tensor is named after its layer's kind and number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from renaissance.testing.golden import golden_normal, write_golden

HERE = Path(__file__).parent
STEPS, BATCH, CLASSES, SMOOTHING = 20, 8, 10, 0.1
IMAGE = (12, 12, 3)


class Network:
    """Tensors by name, created when a layer first asks for them."""

    def __init__(self, name: str, body: Callable[[Network, Tensor], Tensor]):
        self.name, self.body = name, body
        self.weights: dict[str, Tensor] = {}
        self.statistics: dict[str, Tensor] = {}

    def __call__(self, images: Tensor) -> Tensor:
        return self.body(self, images.permute(0, 3, 1, 2))

    def weight(
        self, name: str, shape: tuple[int, ...], scale: float, offset: float = 0.0
    ) -> Tensor:
        if name not in self.weights:
            drawn = golden_normal(f"{self.name}/{name}", shape) * scale + offset
            self.weights[name] = torch.from_numpy(drawn.astype(np.float32).astype(np.float64))
            self.weights[name].requires_grad_()
        return self.weights[name]

    def conv(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
    ) -> Tensor:
        shape = (out, kernel, kernel, x.shape[1] // groups)
        w = self.weight(f"{name}.weight", shape, scale=1.4 / (kernel * kernel * shape[3]) ** 0.5)
        return F.conv2d(x, w.permute(0, 3, 1, 2), stride=stride, padding=pad, groups=groups)

    def bn(self, number: int, x: Tensor) -> Tensor:
        channels, name = (x.shape[1],), f"bn{number}"
        w = self.weight(f"{name}.weight", channels, scale=0.2, offset=1.0)
        b = self.weight(f"{name}.bias", channels, scale=0.2)
        if f"{name}.mean" not in self.statistics:
            self.statistics[f"{name}.mean"] = torch.zeros(channels, dtype=torch.float64)
            self.statistics[f"{name}.var"] = torch.ones(channels, dtype=torch.float64)
        mean, var = self.statistics[f"{name}.mean"], self.statistics[f"{name}.var"]
        return F.batch_norm(x, mean, var, w, b, training=True, momentum=0.1, eps=1e-5)

    def fc(self, number: int, x: Tensor, out: int) -> Tensor:
        features, name = x.shape[1], f"fc{number}"
        w = self.weight(f"{name}.weight", (out, features), scale=1 / features**0.5)
        return F.linear(x, w, self.weight(f"{name}.bias", (out,), scale=0.1))


def vgg(net: Network, x: Tensor) -> Tensor:
    x = F.relu(net.bn(1, net.conv("conv1", x, 8, 3, pad=1)))
    x = F.relu(net.bn(2, net.conv("conv2", x, 8, 3, pad=1)))
    x = F.max_pool2d(x, 2, 2)
    x = F.relu(net.bn(3, net.conv("conv3", x, 12, 3, pad=1)))
    x = F.max_pool2d(x, 2, 2)
    # A map is flattened in H, W, C order.
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = F.relu(net.fc(1, x, 16))
    return net.fc(2, x, CLASSES)


def resnet(net: Network, x: Tensor) -> Tensor:
    x = F.relu(net.bn(1, net.conv("conv1", x, 8, 3, pad=1)))
    x = F.max_pool2d(x, 3, 2, 1)
    # Basic block, identity shortcut.
    y = F.relu(net.bn(2, net.conv("conv2", x, 8, 3, pad=1)))
    y = net.bn(3, net.conv("conv3", y, 8, 3, pad=1))
    x = F.relu(x + y)
    # Bottleneck that halves the map: projection first, then 1x1, 3x3 with the stride, 1x1.
    shortcut = net.bn(4, net.conv("conv4", x, 16, 1, stride=2))
    y = F.relu(net.bn(5, net.conv("conv5", x, 4, 1)))
    y = F.relu(net.bn(6, net.conv("conv6", y, 4, 3, stride=2, pad=1)))
    y = net.bn(7, net.conv("conv7", y, 16, 1))
    x = F.relu(shortcut + y)
    return net.fc(1, x.mean((2, 3)), CLASSES)


def mobilenet(net: Network, x: Tensor) -> Tensor:
    x = F.relu6(net.bn(1, net.conv("conv1", x, 4, 3, stride=2, pad=1)))
    # Expansion 1.
    y = F.relu6(net.bn(2, net.conv("conv_dw1", x, 4, 3, pad=1, groups=4)))
    x = x + net.bn(3, net.conv("conv2", y, 4, 1))
    # Expansion 6, stride 2, wider: no shortcut.
    y = F.relu6(net.bn(4, net.conv("conv3", x, 24, 1)))
    y = F.relu6(net.bn(5, net.conv("conv_dw2", y, 24, 3, stride=2, pad=1, groups=24)))
    x = net.bn(6, net.conv("conv4", y, 6, 1))
    x = F.relu6(net.bn(7, net.conv("conv5", x, 16, 1)))
    return net.fc(1, x.mean((2, 3)), CLASSES)


NETWORKS = {"vgg": vgg, "resnet": resnet, "mobilenet": mobilenet}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd_nesterov": {"lr": 0.0625, "momentum": 0.9, "weight_decay": 0.01},
    "lars": {"lr": 0.25, "momentum": 0.9, "weight_decay": 0.01, "trust": 0.03125},
    "adamw": {"lr": 0.0078125, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
}


class Lars:
    """Layer-wise rates after You et al. 2017; biases and norms by momentum alone."""

    def __init__(self, decayed: list[Tensor], plain: list[Tensor], options: dict[str, Any]):
        self.decayed, self.plain, self.options = decayed, plain, options
        self.moments = [torch.zeros_like(w) for w in (*decayed, *plain)]

    @torch.no_grad()
    def step(self) -> None:
        o = self.options
        for index, w in enumerate((*self.decayed, *self.plain)):
            g, rate = w.grad, 1.0
            if index < len(self.decayed):
                denominator = g.norm() + o["weight_decay"] * w.norm()
                rate = float(o["trust"] * w.norm() / denominator)
                g = g + o["weight_decay"] * w
            self.moments[index] = o["momentum"] * self.moments[index] + o["lr"] * rate * g
            w -= self.moments[index]


def optimizer_of(name: str, net: Network) -> Any:
    options = OPTIMIZERS[name]
    matrices = ("conv", "fc")
    decayed = [w for n, w in net.weights.items() if n.startswith(matrices) and n.endswith("weight")]
    plain = [w for w in net.weights.values() if not any(w is other for other in decayed)]
    if name == "lars":
        return Lars(decayed, plain, options)
    groups = [
        {"params": decayed, "weight_decay": options["weight_decay"]},
        {"params": plain, "weight_decay": 0.0},
    ]
    if name == "adamw":
        return torch.optim.AdamW(groups, options["lr"], options["betas"], options["eps"])
    return torch.optim.SGD(groups, options["lr"], options["momentum"], nesterov=True)


def batch(network: str, step: int) -> tuple[Tensor, Tensor]:
    """Four batches, over and over."""
    step %= 4
    images = golden_normal(f"{network}/images{step}", (BATCH, *IMAGE))
    labels = [(7 * step + 3 * row) % CLASSES for row in range(BATCH)]
    return torch.from_numpy(images), torch.tensor(labels)


def train(network: str, optimizer: str) -> dict[str, np.ndarray]:
    net = Network(network, NETWORKS[network])
    net(batch(network, 0)[0])
    net.statistics.clear()
    rule = optimizer_of(optimizer, net)
    losses: list[float] = []
    results: dict[str, np.ndarray] = {}
    for step in range(STEPS):
        images, labels = batch(network, step)
        loss = F.cross_entropy(net(images), labels, label_smoothing=SMOOTHING)
        for w in net.weights.values():
            w.grad = None
        loss.backward()
        rule.step()
        losses.append(loss.item())
        tensors = {**net.weights, **net.statistics}
        if step == 0:
            first = {f"first/{n}": v for n, v in tensors.items()}
            if optimizer == "sgd_nesterov":
                first |= {f"gradient/{n}": w.grad for n, w in net.weights.items()}
            results |= {n: v.detach().numpy().astype(np.float32) for n, v in first.items()}
    results |= {f"last/{n}": v.detach().numpy().copy() for n, v in tensors.items()}
    return {"loss": np.array(losses), **results}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    for network in NETWORKS:
        cases = {
            name: ({"network": network, **options}, train(network, name))
            for name, options in OPTIMIZERS.items()
        }
        path = HERE / f"trajectory_{network}.npz"
        write_golden(path, cases)
        losses = {name: results["loss"][[0, -1]].round(3) for name, (_, results) in cases.items()}
        print(f"{path.name}: {path.stat().st_size:,} bytes, losses {losses}")


if __name__ == "__main__":
    main()
