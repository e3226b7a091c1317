"""How ``renaissance train`` trains each network unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW
from renaissance.algo.scheduler import (
    WSD,
    Constant,
    CosineAnnealing,
    Polynomial,
    Scheduler,
)
from renaissance.core.errors import fail

OPTIMIZERS = ("sgd", "momentum", "nesterov", "lars", "adam", "adamw")
SCHEDULERS = ("constant", "cosine", "polynomial", "wsd")


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The numbers of a training.

    Attributes:
        epochs: Length of the run.
        batch: Samples of a step.
        optimizer: One of :data:`OPTIMIZERS`.
        weight_decay: On convolution and fc weights.
        lr: Rate after the warm-up.
        scheduler: One of :data:`SCHEDULERS`.
        warmup: Epochs of linear warm-up; shortened to a fifth of a shorter run.
        smoothing: Label smoothing.
    """

    epochs: int
    batch: int
    optimizer: str
    weight_decay: float
    lr: float
    scheduler: str = "cosine"
    warmup: float = 0.0
    smoothing: float = 0.0


# 8x8 digits on a small MLP: 98.6 to 99.2 % without augmentation, whatever the seed.
DIGITS = TrainingRecipe(30, 32, "adamw", 1e-2, 2e-3, warmup=3)
# Fully connected networks on 28x28 digits.
DENSE = TrainingRecipe(20, 200, "adamw", 1e-4, 1e-3, warmup=2, smoothing=0.1)
# Convolutional networks on small pictures.
CONVOLUTIONAL = TrainingRecipe(30, 256, "nesterov", 5e-4, 0.1, warmup=5, smoothing=0.1)


def recipe_of(network: str) -> TrainingRecipe:
    """The recipe of a network by name; ``"digits"`` is the built-in demonstration."""
    if network == "digits":
        return DIGITS
    return DENSE if network == "mlp" else CONVOLUTIONAL


def make_optimizer(name: str, weight_decay: float) -> Any:
    """An optimizer by name."""
    match name:
        case "sgd":
            return SGD(weight_decay=weight_decay)
        case "momentum":
            return SGD(momentum=0.9, weight_decay=weight_decay)
        case "nesterov":
            return SGD(momentum=0.9, nesterov=True, weight_decay=weight_decay)
        case "lars":
            return LARS(momentum=0.9, weight_decay=weight_decay)
        case "adam":
            return Adam(weight_decay=weight_decay)
        case "adamw":
            return AdamW(weight_decay=weight_decay)
    return fail(ValueError, "optimizer", name, f"one of {', '.join(OPTIMIZERS)}")


def make_scheduler(name: str, lr: float, warmup: float) -> Scheduler:
    """A schedule by name, changing the rate every step."""
    kinds = {
        "constant": Constant,
        "cosine": CosineAnnealing,
        "polynomial": Polynomial,
        "wsd": WSD,
    }
    if name not in kinds:
        fail(ValueError, "scheduler", name, f"one of {', '.join(SCHEDULERS)}")
    return kinds[name](lr, warmup=warmup)
