"""The fused kinds as compositions of plain layers: the definition that fused kernels are held to.

A convolution and the batch norm behind it travel as one :class:`ConvBn`. Every function returns
its result and the units with the running statistics after the batch; at inference they come back as
they went in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from renaissance.core.errors import fail
from renaissance.lowering.activation import add, relu, relu6
from renaissance.lowering.conv import group_conv
from renaissance.lowering.fc import fc
from renaissance.lowering.norm import batch_norm_infer, batch_norm_train
from renaissance.lowering.pool import global_average_pool, max_pool

Units = tuple["ConvBn", ...]


class ConvBn(NamedTuple):
    """The tensors of a convolution and of the batch norm behind it; a pytree.

    Attributes:
        weight: Filters ``(K, R, S, C / groups)``.
        gamma: Scale ``(K,)``.
        beta: Shift ``(K,)``.
        mean: Running mean ``(K,)``.
        var: Running variance ``(K,)``.
    """

    weight: Any
    gamma: Any
    beta: Any
    mean: Any
    var: Any


def conv_bn(
    x: Any,
    unit: ConvBn,
    *,
    stride: Any = 1,
    pad: Any = 0,
    groups: int = 1,
    train: bool,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[jax.Array, ConvBn]:
    """Convolution, then batch norm.

    Args:
        x: Map ``(N, H, W, C)``, fp16, fp32 or fp64.
        unit: The tensors.
        stride: Step of the window in pixels.
        pad: Zeros added on both sides.
        groups: Groups of the convolution; C for a depthwise one.
        train: Normalise with the batch's statistics and move the running ones; else use these.
        momentum: Weight of this batch in the running statistics.
        eps: Added to the variance.

    Returns:
        ``(y, unit)``: map ``(N, P, Q, K)``, and the unit with its new running statistics.

    Raises:
        As :func:`~renaissance.lowering.conv.group_conv` and
        :func:`~renaissance.lowering.norm.batch_norm_train`.
    """
    y = group_conv(x, unit.weight, groups=groups, stride=stride, pad=pad)
    operands = (unit.gamma, unit.beta, unit.mean, unit.var)
    if not train:
        return batch_norm_infer(y, *operands, eps=eps), unit
    y, mean, var = batch_norm_train(y, *operands, momentum=momentum, eps=eps)
    return y, unit._replace(mean=mean, var=var)


def conv_bn_relu(x: Any, unit: ConvBn, **options: Any) -> tuple[jax.Array, ConvBn]:
    """Convolution, batch norm, ReLU.

    Args:
        x: Map ``(N, H, W, C)``.
        unit: The tensors.
        options: As :func:`conv_bn`; ``train`` must be given.

    Returns:
        ``(y, unit)`` as :func:`conv_bn`.

    Raises:
        As :func:`conv_bn`.
    """
    y, unit = conv_bn(x, unit, **options)
    return relu(y), unit


def conv_bn_relu_max_pool(
    x: Any, unit: ConvBn, *, kernel: Any, pool_stride: Any, pool_pad: Any = 0, **options: Any
) -> tuple[jax.Array, ConvBn]:
    """Convolution, batch norm, ReLU, max-pool.

    Args:
        x: Map ``(N, H, W, C)``.
        unit: The tensors.
        kernel: Window of the pool in pixels.
        pool_stride: Step of the pool in pixels.
        pool_pad: Padding of the pool, at most half its window.
        options: As :func:`conv_bn`, of the convolution and the norm; ``train`` must be given.

    Returns:
        ``(y, unit)`` as :func:`conv_bn`, ``y`` after the pool.

    Raises:
        As :func:`conv_bn` and :func:`~renaissance.lowering.pool.max_pool`.
    """
    y, unit = conv_bn_relu(x, unit, **options)
    return max_pool(y, kernel=kernel, stride=pool_stride, pad=pool_pad), unit


def gap_fc(x: Any, weight: Any, bias: Any = None) -> jax.Array:
    """Global average pool, then a fully connected layer.

    Args:
        x: Map ``(N, H, W, C)``.
        weight: ``(out, C)``.
        bias: ``(out,)`` or None.

    Returns:
        ``(N, 1, 1, out)`` in the dtype of ``x``.

    Raises:
        As :func:`~renaissance.lowering.fc.fc`.
    """
    return fc(global_average_pool(x), weight, bias)


def bottleneck(
    x: Any, units: Sequence[ConvBn], *, stride: int = 1, train: bool
) -> tuple[jax.Array, Units]:
    """Residual block 1x1 - 3x3 - 1x1 with ReLU; the stride sits on the 3x3 convolution.

    Args:
        x: Map ``(N, H, W, C)``.
        units: The three convolutions of the main path; with a fourth in front, the 1x1 projection
            of the shortcut. Without it the shortcut is x itself.
        stride: Step of the 3x3 convolution and of the projection.
        train: As :func:`conv_bn`.

    Returns:
        ``(y, units)``: map ``(N, P, Q, K)`` and the units with new running statistics.

    Raises:
        ShapeError: shortcut and main path end in different shapes.
        ValueError: there are neither three nor four units.

    Source: He et al. 2015, "Deep residual learning"; the place of the stride as in Goyal et al.
    2017, "Accurate, large minibatch SGD".
    """
    shortcut, projection, (first, second, third) = _shortcut(x, units, 3, stride, train)
    y, first = conv_bn_relu(x, first, train=train)
    y, second = conv_bn_relu(y, second, stride=stride, pad=1, train=train)
    y, third = conv_bn(y, third, train=train)
    return relu(add(shortcut, y)), (*projection, first, second, third)


def basic_block(
    x: Any, units: Sequence[ConvBn], *, stride: int = 1, train: bool
) -> tuple[jax.Array, Units]:
    """Residual block 3x3 - 3x3 with ReLU; the stride sits on the first convolution.

    Args:
        x: Map ``(N, H, W, C)``.
        units: The two convolutions of the main path; with a third in front, the 1x1 projection of
            the shortcut. Without it the shortcut is x itself.
        stride: Step of the first convolution and of the projection.
        train: As :func:`conv_bn`.

    Returns:
        ``(y, units)``: map ``(N, P, Q, K)`` and the units with new running statistics.

    Raises:
        ShapeError: shortcut and main path end in different shapes.
        ValueError: there are neither two nor three units.

    Source: He et al. 2015, "Deep residual learning for image recognition".
    """
    shortcut, projection, (first, second) = _shortcut(x, units, 2, stride, train)
    y, first = conv_bn_relu(x, first, stride=stride, pad=1, train=train)
    y, second = conv_bn(y, second, pad=1, train=train)
    return relu(add(shortcut, y)), (*projection, first, second)


def inverted_residual(
    x: Any, units: Sequence[ConvBn], *, stride: int = 1, train: bool
) -> tuple[jax.Array, Units]:
    """Inverted residual: widen by 1x1, filter depthwise by 3x3, narrow by 1x1 without activation.

    x is added where the stride is 1 and the result has as many channels as x.

    Args:
        x: Map ``(N, H, W, C)``.
        units: Three convolutions; two where nothing is widened.
        stride: Step of the depthwise convolution.
        train: As :func:`conv_bn`.

    Returns:
        ``(y, units)``: map ``(N, P, Q, K)`` and the units with new running statistics.

    Raises:
        ValueError: there are neither two nor three units.

    Source: Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks".
    """
    if len(units) not in (2, 3):
        fail(ValueError, "number of units of an inverted residual", len(units), "2 or 3")
    *widening, depthwise, narrowing = units
    y = x
    for index, unit in enumerate(widening):
        y, widening[index] = _with(relu6, conv_bn(y, unit, train=train))
    groups = y.shape[3]
    options = {"stride": stride, "pad": 1, "groups": groups, "train": train}
    y, depthwise = _with(relu6, conv_bn(y, depthwise, **options))
    y, narrowing = conv_bn(y, narrowing, train=train)
    if stride == 1 and y.shape == x.shape:
        y = add(x, y)
    return y, (*widening, depthwise, narrowing)


def _with(
    activation: Callable[[Any], jax.Array], result: tuple[jax.Array, ConvBn]
) -> tuple[jax.Array, ConvBn]:
    y, unit = result
    return activation(y), unit


def _shortcut(
    x: Any, units: Sequence[ConvBn], main: int, stride: int, train: bool
) -> tuple[jax.Array, Units, Sequence[ConvBn]]:
    """The shortcut's end, its projection if there is one, and the units of the main path."""
    if len(units) not in (main, main + 1):
        fail(ValueError, "number of units of a residual block", len(units), f"{main} or {main + 1}")
    if len(units) == main:
        return x, (), units
    shortcut, projection = conv_bn(x, units[0], stride=stride, train=train)
    return shortcut, (projection,), units[1:]
