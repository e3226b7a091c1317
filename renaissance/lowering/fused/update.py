"""Constants of the update kernels, from the configuration of the algorithms."""

from __future__ import annotations

from math import inf, log
from typing import Any

from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW, Optimizer
from renaissance.core.errors import fail
from renaissance.lowering.calls.ffi import RULE_NUMBERS


def optimizer_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Attributes of the optimizer's custom call, besides sizes; clipping and averaging are off.

    Under LARS this is the rule of biases and batch norms: plain momentum without decay.

    Raises:
        ValueError: there is no kernel for this optimizer.
    """
    none = {"momentum": 0.0, "beta1": 0.0, "beta2": 0.0, "rest1": 1.0, "rest2": 1.0, "eps": 0.0}
    none |= {"max_abs": 0.0, "ema_decay": 0.0}
    if isinstance(optimizer, (Adam, AdamW)):
        betas = {"beta1": optimizer.beta1, "beta2": optimizer.beta2}
        rests = {"rest1": 1 - optimizer.beta1, "rest2": 1 - optimizer.beta2}
        own = {**betas, **rests, "eps": optimizer.eps, "weight_decay": optimizer.weight_decay}
        rule = "adamw" if isinstance(optimizer, AdamW) else "adam"
    elif isinstance(optimizer, (SGD, LARS)):
        decay = optimizer.weight_decay if isinstance(optimizer, SGD) else 0.0
        own = {"momentum": optimizer.momentum, "weight_decay": decay}
        moving = "nesterov" if optimizer.nesterov else "momentum"
        rule = moving if optimizer.momentum else "sgd"
    else:
        fail(ValueError, "optimizer of the fused lowering", optimizer, "SGD, LARS, Adam or AdamW")
    values = {name: float(value) for name, value in (none | own).items()}
    return {**values, "rule": RULE_NUMBERS[rule]}


def lars_attributes(optimizer: LARS) -> dict[str, Any]:
    """Attributes of the LARS update of matrix weights, besides the table of tensors."""
    names = ("momentum", "weight_decay", "trust_coefficient", "eps")
    values = {name: float(getattr(optimizer, name)) for name in names}
    return {**values, "nesterov": int(optimizer.nesterov)}


def log_betas(optimizer: Optimizer) -> dict[str, float]:
    """Logarithms of the moments' decays, for the bias corrections; minus infinity for 0."""
    betas = [getattr(optimizer, name, 0.0) for name in ("beta1", "beta2")]
    logs = [log(beta) if beta > 0 else -inf for beta in betas]
    return {"log_beta1": logs[0], "log_beta2": logs[1]}
