"""Initial weights, drawn on the host by one implementation.

The same seed gives the same bits everywhere. Every tensor has its own Philox stream, chosen by its
index in the plan, at the step word before the first step; a tensor's values therefore do not depend
on those of any other.

Fans: a filter ``(K, R, S, C)`` has ``fan_in = R S C`` and ``fan_out = K R S``, a matrix
``(out, in)`` has ``in`` and ``out``. C is the channels of one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from renaissance.core import philox
from renaissance.core.errors import check_real, fail
from renaissance.core.types import WeightGroup

FANS = ("in", "out", "avg")
RELU_GAIN = sqrt(2.0)


def gain_for_slope(negative_slope: float) -> float:
    """Gain before a leaky ReLU: ``sqrt(2 / (1 + a^2))``; slope 0 is ReLU, slope 1 no activation.

    Args:
        negative_slope: ``a``.
    """
    return sqrt(2.0 / (1.0 + check_real("negative_slope", negative_slope) ** 2))


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """``(fan_in, fan_out)`` of a filter or a matrix.

    Args:
        shape: ``(K, R, S, C)`` or ``(out, in)``.

    Raises:
        ValueError: Another rank, or an empty tensor.
    """
    if len(shape) not in (2, 4) or min(shape) < 1:
        fail(ValueError, "weight shape", shape, "KRSC filters or an (out, in) matrix")
    return prod(shape[1:]), prod(shape[:-1])


def fan_of(shape: tuple[int, ...], fan: str) -> float:
    """The chosen fan of a weight: ``"in"``, ``"out"``, or their mean ``"avg"``.

    Args:
        shape: ``(K, R, S, C)`` or ``(out, in)``.
        fan: Which one.
    """
    fan_in, fan_out = fans(shape)
    return {"in": fan_in, "out": fan_out, "avg": (fan_in + fan_out) / 2}[fan]


def _check_fan(name: str, fan: str) -> None:
    if fan not in FANS:
        fail(ValueError, f"{name} fan", fan, '"in", "out" or "avg"')


class Initializer(Protocol):
    """How the weights of convolution and fc layers start."""

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """The initial values of one weight.

        Args:
            shape: ``(K, R, S, C)`` or ``(out, in)``.
            seed: 64-bit seed of the run.
            index: The tensor's index in the plan, its Philox stream.

        Returns:
            ``float32[shape]``.
        """
        ...


def _uniform(shape: tuple[int, ...], bound: float, seed: int, index: int) -> NDArray[np.float32]:
    u = philox.uniform(seed, prod(shape), operation=index, step=philox.BEFORE_FIRST_STEP)
    return (bound * (2.0 * u.astype(np.float64) - 1.0)).astype(np.float32).reshape(shape)


def _normal(
    shape: tuple[int, ...], mean: float, std: float, seed: int, index: int
) -> NDArray[np.float32]:
    z = philox.normal(seed, prod(shape), operation=index, step=philox.BEFORE_FIRST_STEP)
    return (mean + std * z).astype(np.float32).reshape(shape)


@dataclass(frozen=True, slots=True)
class KaimingUniform:
    """Uniform in ``[-b, b)``, ``b = gain sqrt(3 / fan)``.

    Args:
        fan: ``"in"``, ``"out"`` or ``"avg"``.
        gain: > 0; ``sqrt(2)`` before a ReLU, :func:`gain_for_slope` otherwise.

    Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015.
    """

    fan: str = "in"
    gain: float = RELU_GAIN

    def __post_init__(self) -> None:
        _check_fan("KaimingUniform", self.fan)
        check_real("KaimingUniform gain", self.gain, 0, open_low=True)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return _uniform(shape, self.gain * sqrt(3.0 / fan_of(shape, self.fan)), seed, index)


@dataclass(frozen=True, slots=True)
class KaimingNormal:
    """Normal with ``sigma = gain / sqrt(fan)``.

    Args:
        fan: ``"in"``, ``"out"`` or ``"avg"``.
        gain: > 0; ``sqrt(2)`` before a ReLU, :func:`gain_for_slope` otherwise.

    Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015.
    """

    fan: str = "in"
    gain: float = RELU_GAIN

    def __post_init__(self) -> None:
        _check_fan("KaimingNormal", self.fan)
        check_real("KaimingNormal gain", self.gain, 0, open_low=True)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return _normal(shape, 0.0, self.gain / sqrt(fan_of(shape, self.fan)), seed, index)


@dataclass(frozen=True, slots=True)
class XavierUniform:
    """Uniform in ``[-b, b)``, ``b = gain sqrt(6 / (fan_in + fan_out))``.

    Args:
        gain: > 0.

    Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010.
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        check_real("XavierUniform gain", self.gain, 0, open_low=True)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return _uniform(shape, self.gain * sqrt(6.0 / sum(fans(shape))), seed, index)


@dataclass(frozen=True, slots=True)
class XavierNormal:
    """Normal with ``sigma = gain sqrt(2 / (fan_in + fan_out))``.

    Args:
        gain: > 0.

    Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010.
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        check_real("XavierNormal gain", self.gain, 0, open_low=True)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return _normal(shape, 0.0, self.gain * sqrt(2.0 / sum(fans(shape))), seed, index)


@dataclass(frozen=True, slots=True)
class TruncatedNormal:
    """Normal with ``sigma = sqrt(scale / fan)``, values outside two sigma drawn again.

    ``sigma`` is that of the normal before truncation; it is not corrected. An element's k-th redraw
    is the same element of the stream with sample id k.

    Args:
        scale: > 0.
        fan: ``"in"``, ``"out"`` or ``"avg"``.
    """

    scale: float = 1.0
    fan: str = "in"

    def __post_init__(self) -> None:
        check_real("TruncatedNormal scale", self.scale, 0, open_low=True)
        _check_fan("TruncatedNormal", self.fan)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        sigma = sqrt(self.scale / fan_of(shape, self.fan))
        step, attempt = philox.BEFORE_FIRST_STEP, 0
        z = philox.normal(seed, prod(shape), operation=index, step=step)
        outside = np.flatnonzero(np.abs(z) > 2.0)
        while outside.size:
            attempt += 1
            z[outside] = philox.normal_at(outside, seed, sample=attempt, operation=index, step=step)
            outside = outside[np.abs(z[outside]) > 2.0]
        return (sigma * z).astype(np.float32).reshape(shape)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal with a fixed mean and deviation, whatever the shape.

    Args:
        std: ``sigma`` >= 0.
        mean: Centre.
    """

    std: float = 0.01
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_real("Normal std", self.std, 0)
        check_real("Normal mean", self.mean)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return _normal(shape, self.mean, self.std, seed, index)


@dataclass(frozen=True, slots=True)
class ConstantInit:
    """Every element the same value.

    Args:
        value: That value.
    """

    value: float

    def __post_init__(self) -> None:
        check_real("ConstantInit value", self.value)

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return np.full(shape, self.value, np.float32)


@dataclass(frozen=True, slots=True)
class Zeros:
    """Every element zero."""

    def draw(self, shape: tuple[int, ...], *, seed: int, index: int) -> NDArray[np.float32]:
        """See :meth:`Initializer.draw`."""
        return np.zeros(shape, np.float32)


def initial_weights(
    weights: Iterable[tuple[str, tuple[int, ...], WeightGroup]],
    initializer: Initializer,
    seed: int,
    *,
    zero_gamma: Collection[str] = (),
) -> dict[str, NDArray[np.float32]]:
    """The initial values of all trainable tensors.

    Convolution and fc weights come from the initializer; biases are 0, BN scales 1.

    Args:
        weights: Full name, shape and group of each, in plan order; the position is the tensor's
            Philox stream.
        initializer: Draws the weights.
        seed: 64-bit seed of the run.
        zero_gamma: Full names of BN scales that start at 0 instead, those of the last BN of each
            residual block, so that every block starts as its shortcut.

    Returns:
        Full name to float32 array, in plan order.

    Raises:
        ValueError: A name given twice, or one in ``zero_gamma`` that is no BN scale of the plan.

    Source of zero-gamma: Goyal et al., "Accurate, large minibatch SGD", 2017.
    """
    values: dict[str, NDArray[np.float32]] = {}
    scales: set[str] = set()
    for index, (name, shape, group) in enumerate(weights):
        if name in values:
            fail(ValueError, "weight name", name, "unique in the plan")
        if group.decays:
            values[name] = initializer.draw(tuple(shape), seed=seed, index=index)
        elif group is WeightGroup.BN_WEIGHT:
            scales.add(name)
            values[name] = np.full(shape, 0.0 if name in zero_gamma else 1.0, np.float32)
        else:
            values[name] = np.zeros(shape, np.float32)
    unknown = set(zero_gamma) - scales
    if unknown:
        fail(ValueError, "zero_gamma", sorted(unknown), f"names of BN scales: {sorted(scales)}")
    return values
