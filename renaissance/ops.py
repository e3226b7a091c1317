"""The layers as plain functions on arrays: NHWC maps, KRSC filters, usable under any JAX transform.

Every function checks shapes and dtypes while tracing and says what would be right. The dtype of
``x`` (fp16, fp32 or fp64) decides that of the result; statistics and losses are fp32 or better.
"""

from __future__ import annotations

from renaissance.lowering.activation import (
    add,
    elu,
    hardswish,
    leaky_relu,
    relu,
    relu6,
    sigmoid,
    silu,
    tanh,
)
from renaissance.lowering.block import (
    ConvBn,
    basic_block,
    bottleneck,
    conv_bn,
    conv_bn_relu,
    conv_bn_relu_max_pool,
    gap_fc,
    inverted_residual,
)
from renaissance.lowering.conv import conv, conv_output_shape, depthwise_conv, group_conv
from renaissance.lowering.dropout import dropout, uniform
from renaissance.lowering.fc import channel_padding, fc, flatten
from renaissance.lowering.loss import (
    cross_entropy_rows,
    predicted_labels,
    softmax_cross_entropy,
    top_k_hits,
)
from renaissance.lowering.norm import (
    affine,
    batch_norm_infer,
    batch_norm_train,
    batch_statistics,
    fold_batch_norm,
)
from renaissance.lowering.pool import (
    average_pool,
    global_average_pool,
    max_pool,
    pool_output_shape,
)

__all__ = [
    "ConvBn",
    "add",
    "affine",
    "average_pool",
    "basic_block",
    "batch_norm_infer",
    "batch_norm_train",
    "batch_statistics",
    "bottleneck",
    "channel_padding",
    "conv",
    "conv_bn",
    "conv_bn_relu",
    "conv_bn_relu_max_pool",
    "conv_output_shape",
    "cross_entropy_rows",
    "depthwise_conv",
    "dropout",
    "elu",
    "fc",
    "flatten",
    "fold_batch_norm",
    "gap_fc",
    "global_average_pool",
    "group_conv",
    "hardswish",
    "inverted_residual",
    "leaky_relu",
    "max_pool",
    "pool_output_shape",
    "predicted_labels",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softmax_cross_entropy",
    "tanh",
    "top_k_hits",
    "uniform",
]
