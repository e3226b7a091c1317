"""Parameter records: what a layer is asked for, checked the moment it is written down.

Every record is frozen, hashable and validated on construction, so a blueprint, a plan and a file
read back from disk obey the same rules. The order of the fields is the order of the arguments of
the factory that builds the record.
"""

from __future__ import annotations

from renaissance.graph.params.composite import (
    BasicBlock,
    Block,
    BlockStyle,
    Bottleneck,
    ConvBnRelu,
    ConvBnReluPool,
    GapFc,
    InvertedResidual,
    MbConv,
)
from renaissance.graph.params.primitive import (
    Activation,
    BatchNorm,
    Conv,
    ConvDw,
    Dropout,
    Empty,
    Fc,
    Flatten,
    Gap,
    GroupConv,
    Head,
    Pool,
)

__all__ = [
    "Activation",
    "BasicBlock",
    "BatchNorm",
    "Block",
    "BlockStyle",
    "Bottleneck",
    "Conv",
    "ConvBnRelu",
    "ConvBnReluPool",
    "ConvDw",
    "Dropout",
    "Empty",
    "Fc",
    "Flatten",
    "Gap",
    "GapFc",
    "GroupConv",
    "Head",
    "InvertedResidual",
    "MbConv",
    "Pool",
]
