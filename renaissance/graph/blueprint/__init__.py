"""The model language: factories of layers, and BluePrint.

>>> from renaissance.graph.blueprint import *
>>> net = seq(cbr(16, 3, 1, 1), repeat(block(16, RESNET_3_3), 2), gap_fc(10, True))
>>> BluePrint(net, "tiny")
BluePrint(seq(cbr(16, 3, 1, 1), repeat(block(16, RESNET_3_3), 2), gap_fc(10, True)), 'tiny')
"""

from __future__ import annotations

from renaissance.graph.blueprint.blocks import (
    MB_E1_K3,
    MB_E1_K3_DS,
    MB_E6_K3,
    MB_E6_K3_DS,
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    block,
    cbr,
    cbrp,
    conv_bn_relu,
    gap_fc,
    mbconv,
)
from renaissance.graph.blueprint.composition import add2, repeat, seq
from renaissance.graph.blueprint.factories import (
    avgpool,
    bn,
    channel_padding,
    conv,
    conv_dw,
    dropout,
    elu,
    fc,
    flatten,
    gap,
    group_conv,
    hardswish,
    identity,
    leaky_relu,
    maxpool,
    relu,
    relu6,
    sigmoid,
    silu,
    tanh_act,
)
from renaissance.graph.blueprint.generic import layer
from renaissance.graph.blueprint.model import BluePrint
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.params import BlockStyle

__all__ = [
    "BlockStyle",
    "BluePrint",
    "Layer",
    "MB_E1_K3",
    "MB_E1_K3_DS",
    "MB_E6_K3",
    "MB_E6_K3_DS",
    "RESNET_1_3_1",
    "RESNET_1_3_1_DS",
    "RESNET_3_3",
    "RESNET_3_3_DS",
    "add2",
    "avgpool",
    "block",
    "bn",
    "cbr",
    "cbrp",
    "channel_padding",
    "conv",
    "conv_bn_relu",
    "conv_dw",
    "dropout",
    "elu",
    "fc",
    "flatten",
    "gap",
    "gap_fc",
    "group_conv",
    "hardswish",
    "identity",
    "layer",
    "leaky_relu",
    "maxpool",
    "mbconv",
    "relu",
    "relu6",
    "repeat",
    "seq",
    "sigmoid",
    "silu",
    "tanh_act",
]
