"""The lowering of every primitive kind: layer records and named tensors to the plain functions.

Between layers a flat vector is a map of one pixel, ``(N, 1, 1, C)``. Importing this module fills
the table of :mod:`renaissance.lowering.registry`. The residual markers are not in it: they work on
the network's stack, not on arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from renaissance.graph.layer import ArchLayer
from renaissance.lowering.activation import ACTIVATIONS
from renaissance.lowering.conv import group_conv
from renaissance.lowering.dropout import dropout
from renaissance.lowering.fc import channel_padding, fc, pad_channels_to
from renaissance.lowering.norm import affine, batch_norm_infer, batch_norm_train
from renaissance.lowering.pool import average_pool, global_average_pool, max_pool
from renaissance.lowering.registry import LayerLowering, Tensors, TrainContext, register_lowering

Statistics = dict[str, jax.Array]
Formula = Callable[[ArchLayer, Tensors, jax.Array], jax.Array]


def _conv(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    params, weight = layer.params, tensors["weight"]
    if layer.is_first_layer:
        # Images may carry channels of zeros; filters of zeros meet them.
        weight = pad_channels_to(weight, x.shape[3])
    return group_conv(x, weight, groups=1, stride=params.stride, pad=params.pad)


def _conv_dw(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    params, channels = layer.params, layer.in_shape.c
    return group_conv(x, tensors["weight"], groups=channels, stride=params.stride, pad=params.pad)


def _group_conv(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    params = layer.params
    groups = params.groups
    return group_conv(x, tensors["weight"], groups=groups, stride=params.stride, pad=params.pad)


def _max_pool(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    params = layer.params
    return max_pool(x, kernel=params.kernel, stride=params.stride, pad=params.pad)


def _average_pool(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    params = layer.params
    return average_pool(x, kernel=params.kernel, stride=params.stride, pad=params.pad)


def _global_average_pool(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    return global_average_pool(x)


def _fc(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    # A map that reaches a fully connected layer is read as one long vector.
    return fc(x.reshape(x.shape[0], 1, 1, -1), tensors["weight"], tensors.get("bias"))


def _reshape(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    # The plan's shapes are those of one sample at the planned resolution, which may differ here.
    n, h, _, _ = x.shape
    start_dim = layer.params.start_dim
    return x if start_dim == 3 else x.reshape((n, 1, 1, -1) if start_dim == 1 else (n, h, 1, -1))


def _channel_padding(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    return channel_padding(x)


def _unchanged(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    return x


def _activation(function: Callable[[jax.Array], jax.Array]) -> Formula:
    return lambda layer, tensors, x: function(x)


def _batch_norm_train(
    layer: ArchLayer, tensors: Tensors, x: jax.Array, context: TrainContext
) -> tuple[jax.Array, Statistics]:
    operands = (tensors[name] for name in ("weight", "bias", "mean", "var"))
    params = layer.params
    y, mean, var = batch_norm_train(x, *operands, momentum=params.momentum, eps=params.eps)
    return y, {"mean": mean, "var": var}


def _batch_norm_infer(layer: ArchLayer, tensors: Tensors, x: jax.Array) -> jax.Array:
    if "eq_scale" in tensors:
        return affine(x, tensors["eq_scale"], tensors["eq_bias"])
    operands = (tensors[name] for name in ("weight", "bias", "mean", "var"))
    return batch_norm_infer(x, *operands, eps=layer.params.eps)


def _dropout_train(
    layer: ArchLayer, tensors: Tensors, x: jax.Array, context: TrainContext
) -> tuple[jax.Array, Statistics]:
    y = dropout(
        x,
        layer.params.p,
        seed=context.seed,
        step=context.step,
        layer=context.layer_index,
        first_sample=context.first_sample,
    )
    return y, {}


def _same_in_training(formula: Formula) -> Callable[..., tuple[jax.Array, Statistics]]:
    def train(
        layer: ArchLayer, tensors: Tensors, x: jax.Array, context: TrainContext
    ) -> tuple[jax.Array, Statistics]:
        return formula(layer, tensors, x), {}

    return train


FORMULAS: dict[str, Formula] = {
    "conv": _conv,
    "conv_dw": _conv_dw,
    "group_conv": _group_conv,
    "maxpool": _max_pool,
    "avgpool": _average_pool,
    "gap": _global_average_pool,
    "fc": _fc,
    "flatten": _reshape,
    "channel_padding": _channel_padding,
    "identity": _unchanged,
    # The head has no array of its own: the loss reads the class scores as they are.
    "softmax_cross_entropy": _unchanged,
    **{kind: _activation(function) for kind, function in ACTIVATIONS.items()},
}

for _kind, _formula in FORMULAS.items():
    register_lowering(LayerLowering(_kind, _same_in_training(_formula), _formula))
for _kind in ("bn", "bn1d", "bn2d"):
    register_lowering(LayerLowering(_kind, _batch_norm_train, _batch_norm_infer))
register_lowering(LayerLowering("dropout", _dropout_train, _unchanged))
