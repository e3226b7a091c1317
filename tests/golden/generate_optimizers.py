"""Golden numbers for optimizers, schedules, losses and initialisers, from PyTorch in float64.

Run by hand with an interpreter that has torch (made with 2.13.0, CPU)::

    python tests/golden/generate_optimizers.py

It writes ``optimizers.json`` beside itself. LARS, which torch lacks, is computed here by plain
Python arithmetic on lists, straight from its definition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import lr_scheduler as torch_schedules

STEPS = 12
SHAPES = {"weight": (2, 2, 1, 2), "bias": (3,)}
TORCH_OPTIMIZERS: dict[str, tuple[type, dict[str, Any], float]] = {
    "sgd": (torch.optim.SGD, {}, 0.05),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, 0.05),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 0.05),
    "adam": (torch.optim.Adam, {}, 0.05),
    "adam_no_decay": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}, 0.0),
    "adamw": (torch.optim.AdamW, {}, 0.05),
    "adamw_other": (torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-3}, 0.2),
}


def problem() -> dict[str, Any]:
    """Starting weights, gradients of every step, learning rates."""
    random = np.random.default_rng(20240601)
    weights = {n: random.normal(size=s) for n, s in SHAPES.items()}
    gradients = [{n: random.normal(size=s) for n, s in SHAPES.items()} for _ in range(STEPS)]
    rates = [0.1 if t < 5 else 0.1 * 0.8 ** (t - 4) for t in range(STEPS)]
    return {"weights": weights, "gradients": gradients, "rates": rates}


def torch_trajectory(
    make: type, options: dict[str, Any], weight_decay: float, data: dict[str, Any]
) -> list[dict[str, Any]]:
    """Weights after every step; decay on the weight only."""
    tensors = {n: torch.tensor(w, requires_grad=True) for n, w in data["weights"].items()}
    groups = [
        {"params": [tensors["weight"]], "weight_decay": weight_decay},
        {"params": [tensors["bias"]], "weight_decay": 0.0},
    ]
    optimizer = make(groups, lr=1.0, **options)
    trajectory = []
    for gradients, rate in zip(data["gradients"], data["rates"], strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(gradients[name])
        optimizer.step()
        trajectory.append({n: t.detach().flatten().tolist() for n, t in tensors.items()})
    return trajectory


def lars_trajectory(
    data: dict[str, Any], *, nesterov: bool, weight_decay: float, trust: float, eps: float
) -> list[dict[str, Any]]:
    """LARS on lists of Python floats, momentum 0.9; the bias follows plain momentum."""
    w = {n: [float(x) for x in v.ravel()] for n, v in data["weights"].items()}
    m = {n: [0.0] * len(v) for n, v in w.items()}
    trajectory = []
    for gradients, rate in zip(data["gradients"], data["rates"], strict=True):
        g = {n: [float(x) for x in gradients[n].ravel()] for n in w}
        w_norm = math.sqrt(math.fsum(x * x for x in w["weight"]))
        g_norm = math.sqrt(math.fsum(x * x for x in g["weight"]))
        eta = trust * w_norm / (g_norm + weight_decay * w_norm + eps)
        for i, (x, slope) in enumerate(zip(w["weight"], g["weight"], strict=True)):
            step = rate * eta * (slope + weight_decay * x)
            m["weight"][i] = 0.9 * m["weight"][i] + step
            w["weight"][i] = x - (step + 0.9 * m["weight"][i] if nesterov else m["weight"][i])
        for i, slope in enumerate(g["bias"]):
            m["bias"][i] = 0.9 * m["bias"][i] + slope
            w["bias"][i] -= rate * m["bias"][i]
        trajectory.append({n: list(v) for n, v in w.items()})
    return trajectory


def rates_of(make: Callable[[torch.optim.Optimizer], Any], base: float, steps: int) -> list[float]:
    """The rates that a torch schedule gives to ``steps`` steps, stepped once a step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def warmed(
    warmup: int, factor: float, make: Callable[[torch.optim.Optimizer], Any]
) -> Callable[[torch.optim.Optimizer], Any]:
    """Linear warm-up from ``factor`` times base, then a schedule."""

    def build(optimizer: torch.optim.Optimizer) -> Any:
        ramp = torch_schedules.LinearLR(optimizer, start_factor=factor, total_iters=warmup)
        return torch_schedules.SequentialLR(optimizer, [ramp, make(optimizer)], [warmup])

    return build


def schedules() -> Iterator[tuple[str, list[float]]]:
    """One step an epoch, where torch's definition is ours."""
    s = torch_schedules
    yield "step", rates_of(lambda o: s.StepLR(o, 3, 0.5), 0.4, 12)
    yield "multi_step", rates_of(lambda o: s.MultiStepLR(o, [2, 5, 6], 0.3), 0.4, 12)
    yield "exponential", rates_of(lambda o: s.ExponentialLR(o, 0.9), 0.4, 12)
    yield "polynomial", rates_of(lambda o: s.PolynomialLR(o, 13, power=1.5), 0.4, 12)
    yield "cosine_batch", rates_of(lambda o: s.CosineAnnealingLR(o, 12, 0.01), 0.4, 12)
    yield "cosine_epoch", rates_of(lambda o: s.CosineAnnealingLR(o, 11, 0.01), 0.4, 12)
    for mult in (1, 2, 3):
        yield (
            f"warm_restarts_{mult}",
            rates_of(lambda o, m=mult: s.CosineAnnealingWarmRestarts(o, 2, m, 0.01), 0.4, 30),
        )
    cosine = warmed(4, 0.25, lambda o: s.CosineAnnealingLR(o, 8, 0.01))
    yield "cosine_after_warmup", rates_of(cosine, 0.4, 12)
    yield "step_after_warmup", rates_of(warmed(4, 0.25, lambda o: s.StepLR(o, 3, 0.5)), 0.4, 12)

    def stable_then_linear(o: torch.optim.Optimizer) -> Any:
        stable = s.ConstantLR(o, factor=1.0, total_iters=9)
        decay = s.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=3)
        return s.SequentialLR(o, [stable, decay], [9])

    yield "wsd", rates_of(stable_then_linear, 0.4, 12)


def losses() -> Iterator[dict[str, Any]]:
    """Cross entropy per row and its gradient."""
    random = np.random.default_rng(7)
    for smoothing, classes, rows in ((0.0, 5, 4), (0.1, 5, 4), (0.3, 3, 2), (0.1, 1, 2)):
        logits = torch.tensor(random.normal(scale=3, size=(rows, classes)), requires_grad=True)
        labels = torch.tensor(random.integers(0, classes, rows))
        value = torch.nn.functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=smoothing
        )
        value.sum().backward()
        assert logits.grad is not None
        yield {
            "smoothing": smoothing,
            "logits": logits.detach().numpy(),
            "labels": labels.numpy(),
            "losses": value.detach().numpy(),
            "gradient": logits.grad.numpy(),
        }


def spreads() -> Iterator[dict[str, Any]]:
    """Standard deviations and bounds of torch's initialisers for filters and matrices."""
    init = torch.nn.init
    for krsc in ((8, 3, 3, 4), (6, 5, 1, 1), (7, 9), (16, 3, 3, 1)):
        kcrs = krsc if len(krsc) == 2 else (krsc[0], krsc[3], krsc[1], krsc[2])
        fan_in, fan_out = init._calculate_fan_in_and_fan_out(torch.empty(kcrs))
        yield {
            "shape": krsc,
            "fan_in": fan_in,
            "fan_out": fan_out,
            "relu_gain": init.calculate_gain("relu"),
            "leaky_gain": init.calculate_gain("leaky_relu", 0.01),
        }


def dump(value: Any) -> str:
    """JSON with arrays as lists and float64 written exactly."""
    return json.dumps(value, default=lambda array: array.tolist())


def main() -> None:
    data = problem()
    trajectories = {n: torch_trajectory(*o, data) for n, o in TORCH_OPTIMIZERS.items()}
    for nesterov in (False, True):
        name = "lars_nesterov" if nesterov else "lars"
        trajectories[name] = lars_trajectory(
            data, nesterov=nesterov, weight_decay=0.1, trust=0.02, eps=1e-3
        )
    golden = {
        "problem": data,
        "trajectories": trajectories,
        "schedules": dict(schedules()),
        "losses": list(losses()),
        "spreads": list(spreads()),
    }
    path = Path(__file__).with_name("optimizers.json")
    lines = ",\n".join(f'"{key}": {dump(value)}' for key, value in golden.items())
    path.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
