"""Optimizers: configuration and update formulas.

An update is a pure function of arrays, written once over an array namespace: with numpy it is the
golden definition, with ``jax.numpy`` the lowering that runs. No optimizer takes a learning rate:
the scheduler alone owns it. Everything is computed in the dtype of the weights.

Symbols: w weights, g unscaled and clipped gradient, m and v first and second moment, t applied
steps counted from 1, wd weight decay (convolution and fc weights only).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple, Protocol

import numpy as np

from renaissance.algo.clip import norm
from renaissance.core.errors import check_real, fail


class Slots(NamedTuple):
    """Which per-tensor state an optimizer keeps."""

    first_moment: bool
    second_moment: bool
    norms: bool


class Updated(NamedTuple):
    """A tensor and its moments after a step; None for a moment the optimizer does not keep."""

    w: Any
    m: Any
    v: Any


class Optimizer(Protocol):
    """What the lowering needs of an optimizer."""

    @property
    def slots(self) -> Slots:
        """Which per-tensor state it keeps."""
        ...

    def update(
        self, w: Any, g: Any, m: Any, v: Any, *, lr: Any, t: Any, decay: bool, xp: Any = np
    ) -> Updated:
        """One step of one tensor.

        Args:
            w: Weights, float32 or float64, any shape.
            g: Gradient, same shape and dtype.
            m: First moment, or None where :attr:`slots` has none.
            v: Second moment, or None likewise.
            lr: Learning rate of this step, a scalar.
            t: Number of this applied step, from 1; may be traced.
            decay: Whether the tensor is a convolution or fc weight: weight decay and LARS apply.
            xp: Array namespace, ``numpy`` or ``jax.numpy``.

        Returns:
            New weights and moments, the dtype of ``w``.
        """
        ...


def _decayed(w: Any, g: Any, weight_decay: float, decay: bool) -> Any:
    return g + weight_decay * w if decay and weight_decay else g


def _check_nesterov(name: str, momentum: float, nesterov: bool) -> None:
    if nesterov and momentum == 0:
        fail(ValueError, f"{name} momentum", momentum, "above 0 with nesterov=True")


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent, with momentum or Nesterov momentum.

    With ``g' = g + wd w``: plain ``w -= lr g'``; momentum ``m = mu m + g'``, ``w -= lr m``;
    Nesterov the same m, ``w -= lr (g' + mu m)``.

    Args:
        momentum: ``mu`` in [0, 1).
        nesterov: Look-ahead form; needs momentum.
        weight_decay: ``wd`` >= 0.

    Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in
    deep learning", ICML 2013.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_real("SGD momentum", self.momentum, 0, 1, open_high=True)
        check_real("SGD weight_decay", self.weight_decay, 0)
        _check_nesterov("SGD", self.momentum, self.nesterov)

    @property
    def slots(self) -> Slots:
        """First moment with momentum, else nothing."""
        return Slots(first_moment=self.momentum > 0, second_moment=False, norms=False)

    def update(
        self, w: Any, g: Any, m: Any, v: Any, *, lr: Any, t: Any, decay: bool, xp: Any = np
    ) -> Updated:
        """One step of one tensor, see :meth:`Optimizer.update`."""
        lr = xp.asarray(lr, dtype=w.dtype)
        g = _decayed(w, g, self.weight_decay, decay)
        if self.momentum == 0:
            return Updated(w - lr * g, None, None)
        m = self.momentum * m + g
        direction = g + self.momentum * m if self.nesterov else m
        return Updated(w - lr * direction, m, None)


@dataclass(frozen=True, slots=True)
class LARS:
    """Layer-wise adaptive rate scaling: momentum SGD whose rate follows each tensor's norms.

    Per tensor ``eta = tc |w| / (|g| + wd |w| + eps)``, 1 when either norm is 0. With
    ``g' = g + wd w``: ``m = mu m + lr eta g'``, ``w -= m``; Nesterov ``w -= lr eta g' + mu m``.
    Biases and BN parameters follow :class:`SGD`'s momentum rule without decay, in both forms.

    Args:
        momentum: ``mu`` in [0, 1).
        nesterov: Look-ahead form for the weights; needs momentum.
        weight_decay: ``wd`` >= 0.
        trust_coefficient: ``tc`` > 0.
        eps: Added to the denominator, >= 0.

    Source: You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017.
    """

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    eps: float = 0.0

    def __post_init__(self) -> None:
        check_real("LARS momentum", self.momentum, 0, 1, open_high=True)
        check_real("LARS weight_decay", self.weight_decay, 0)
        check_real("LARS trust_coefficient", self.trust_coefficient, 0, open_low=True)
        check_real("LARS eps", self.eps, 0)
        _check_nesterov("LARS", self.momentum, self.nesterov)

    @property
    def slots(self) -> Slots:
        """Norms, and the first moment with momentum."""
        return Slots(first_moment=self.momentum > 0, second_moment=False, norms=True)

    def trust_ratio(self, w: Any, g: Any, *, xp: Any = np) -> Any:
        """``eta`` of one tensor.

        Args:
            w: Weights.
            g: Gradient without decay.
            xp: Array namespace.

        Returns:
            A scalar of the dtype of ``w``.
        """
        w_norm, g_norm = norm(w, xp=xp), norm(g, xp=xp)
        usable = xp.logical_and(w_norm > 0, g_norm > 0)
        denominator = g_norm + self.weight_decay * w_norm + self.eps
        ratio = self.trust_coefficient * (w_norm / xp.where(usable, denominator, 1))
        return xp.where(usable, ratio, 1).astype(w.dtype)

    def update(
        self, w: Any, g: Any, m: Any, v: Any, *, lr: Any, t: Any, decay: bool, xp: Any = np
    ) -> Updated:
        """One step of one tensor, see :meth:`Optimizer.update`."""
        if not decay:
            return SGD(self.momentum).update(w, g, m, v, lr=lr, t=t, decay=False, xp=xp)
        lr = xp.asarray(lr, dtype=w.dtype)
        step = lr * self.trust_ratio(w, g, xp=xp) * _decayed(w, g, self.weight_decay, decay)
        if self.momentum == 0:
            return Updated(w - step, None, None)
        m = self.momentum * m + step
        return Updated(w - (step + self.momentum * m if self.nesterov else m), m, None)


def bias_correction(beta: float, t: Any, dtype: Any, *, xp: Any = np) -> Any:
    """``1 - beta**t`` without cancellation, as ``-expm1(t log beta)``.

    Taken literally in float32, ``1 - 0.999**1`` has only four right digits.

    Args:
        beta: Decay of the moment, in [0, 1).
        t: Applied steps from 1, any scalar; may be traced.
        dtype: float32 or float64.
        xp: Array namespace.

    Returns:
        A scalar of ``dtype``.
    """
    if beta == 0:
        return xp.ones((), dtype)
    return -xp.expm1(xp.asarray(t).astype(dtype) * xp.asarray(log(beta), dtype=dtype))


def _check_adam(name: str, beta1: float, beta2: float, eps: float, weight_decay: float) -> None:
    check_real(f"{name} beta1", beta1, 0, 1, open_high=True)
    check_real(f"{name} beta2", beta2, 0, 1, open_high=True)
    check_real(f"{name} eps", eps, 0, open_low=True)
    check_real(f"{name} weight_decay", weight_decay, 0)


def _adam_direction(
    optimizer: Adam | AdamW, g: Any, m: Any, v: Any, t: Any, xp: Any
) -> tuple[Any, Any, Any]:
    """The step ``m^ / (sqrt(v^) + eps)`` and the new moments."""
    m = optimizer.beta1 * m + (1 - optimizer.beta1) * g
    v = optimizer.beta2 * v + (1 - optimizer.beta2) * xp.square(g)
    m_hat = m / bias_correction(optimizer.beta1, t, g.dtype, xp=xp)
    v_hat = v / bias_correction(optimizer.beta2, t, g.dtype, xp=xp)
    return m_hat / (xp.sqrt(v_hat) + optimizer.eps), m, v


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam; weight decay, if any, is L2 regularisation inside the gradient.

    ``g' = g + wd w``, ``m = b1 m + (1 - b1) g'``, ``v = b2 v + (1 - b2) g'^2``,
    ``w -= lr m^ / (sqrt(v^) + eps)`` with ``m^ = m / (1 - b1^t)``, ``v^ = v / (1 - b2^t)``.

    Args:
        beta1: ``b1`` in [0, 1).
        beta2: ``b2`` in [0, 1).
        eps: > 0.
        weight_decay: ``wd`` >= 0.

    Source: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_adam("Adam", self.beta1, self.beta2, self.eps, self.weight_decay)

    @property
    def slots(self) -> Slots:
        """Both moments."""
        return Slots(first_moment=True, second_moment=True, norms=False)

    def update(
        self, w: Any, g: Any, m: Any, v: Any, *, lr: Any, t: Any, decay: bool, xp: Any = np
    ) -> Updated:
        """One step of one tensor, see :meth:`Optimizer.update`."""
        g = _decayed(w, g, self.weight_decay, decay)
        direction, m, v = _adam_direction(self, g, m, v, t, xp)
        return Updated(w - xp.asarray(lr, dtype=w.dtype) * direction, m, v)


@dataclass(frozen=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay: ``w -= lr (m^ / (sqrt(v^) + eps) + wd w)``.

    Args:
        beta1: ``b1`` in [0, 1).
        beta2: ``b2`` in [0, 1).
        eps: > 0.
        weight_decay: ``wd`` >= 0.

    Source: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam("AdamW", self.beta1, self.beta2, self.eps, self.weight_decay)

    @property
    def slots(self) -> Slots:
        """Both moments."""
        return Slots(first_moment=True, second_moment=True, norms=False)

    def update(
        self, w: Any, g: Any, m: Any, v: Any, *, lr: Any, t: Any, decay: bool, xp: Any = np
    ) -> Updated:
        """One step of one tensor, see :meth:`Optimizer.update`."""
        direction, m, v = _adam_direction(self, g, m, v, t, xp)
        direction = _decayed(w, direction, self.weight_decay, decay)
        return Updated(w - xp.asarray(lr, dtype=w.dtype) * direction, m, v)
