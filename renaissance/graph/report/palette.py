"""The colours of the reports: one a role, soft enough to write on."""

from __future__ import annotations

from renaissance.core.types import Region, StreamKind

_BY_LETTER = {
    "B": "#d9c8ee",
    "W": "#8db8e8",
    "E": "#a5dcd3",
    "A": "#b9d3f2",
    "G": "#f4a99a",
    "M": "#f3d17a",
    "V": "#e6b85c",
    "N": "#d6a36b",
    "R": "#c9d6a3",
    "I": "#c3cad2",
    "F": "#a3d39c",
    "S": "#cfcfcf",
    "T": "#d8b4a0",
}

_GRADIENT_SLOT = "#e98a8a"

ROLE_NAMES = {
    "B": "batch-norm statistics",
    "W": "fp32 master weights",
    "E": "moving average",
    "A": "fp16 compute weights",
    "G": "gradients of weights",
    "M": "first moment",
    "V": "second moment",
    "N": "norms",
    "R": "results",
    "I": "input",
    "F": "features",
    "S": "scalars and masks",
    "T": "temporaries",
}
"""What the first letter of a region's name means."""

STREAMS = {
    StreamKind.TRANS: "#c3cad2",
    StreamKind.COMP_1: "#8db8e8",
    StreamKind.COMP_2: "#f3d17a",
    StreamKind.COMP_3: "#d9c8ee",
    StreamKind.UPDATE: "#a3d39c",
}
"""One colour a stream."""

FAMILIES = {
    "conv": "#8db8e8",
    "depthwise_conv": "#9fc5d8",
    "group_conv": "#9fc5d8",
    "fc": "#b79fe0",
    "gap_fc": "#b79fe0",
    "batch_norm": "#a3d39c",
    "affine": "#a3d39c",
    "activation": "#f3d17a",
    "max_pool": "#d8b4a0",
    "average_pool": "#d8b4a0",
    "global_average_pool": "#d8b4a0",
    "softmax_cross_entropy": "#f4a99a",
    "add": "#e9c2dd",
    "gradient_sum": "#e9c2dd",
}
"""One colour a family of operations, by the beginning of their names."""

OTHER = "#dddddd"


def region_colour(region: Region) -> str:
    """The colour of a region's role."""
    if region.name.startswith("F_GRAD_SLOT"):
        return _GRADIENT_SLOT
    return _BY_LETTER[region.name[0]]


def operation_colour(op: str) -> str:
    """The colour of an operation's family."""
    fitting = [family for family in FAMILIES if op.startswith(family)]
    return FAMILIES[max(fitting, key=len)] if fitting else OTHER
