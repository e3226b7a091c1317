"""Records of the composites: written in a blueprint, or found in a plan by merging."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from renaissance.core.errors import fail
from renaissance.graph.params.checks import (
    BATCH_NORM,
    check_fields,
    check_window,
    flag,
    non_negative,
    positive,
)


@dataclass(frozen=True, slots=True)
class ConvBnRelu:
    """Convolution, batch norm, ReLU as one unit."""

    label: ClassVar[str] = "cbr"
    out: int
    kernel: int
    stride: int
    pad: int
    momentum: float = 0.1
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_fields(self, out=positive, kernel=positive, stride=positive, pad=non_negative)
        check_fields(self, **BATCH_NORM)


@dataclass(frozen=True, slots=True)
class ConvBnReluPool:
    """Convolution, batch norm, ReLU and max-pool as one unit."""

    label: ClassVar[str] = "cbrp"
    out: int
    conv_kernel: int
    conv_stride: int
    conv_pad: int
    pool_kernel: int
    pool_stride: int
    pool_pad: int
    momentum: float = 0.1
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_fields(self, out=positive, conv_kernel=positive, conv_stride=positive)
        check_fields(self, conv_pad=non_negative, pool_kernel=positive, pool_stride=positive)
        check_fields(self, pool_pad=non_negative, **BATCH_NORM)
        check_window(f"{self.label} pool", self.pool_kernel, self.pool_pad)


@dataclass(frozen=True, slots=True)
class GapFc:
    """Global average pool and fully connected layer as one unit."""

    label: ClassVar[str] = "gap_fc"
    out: int
    bias: bool

    def __post_init__(self) -> None:
        check_fields(self, out=positive, bias=flag)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Merged 1x1 - 3x3 - 1x1 residual block; the stride sits on the 3x3 convolution."""

    label: ClassVar[str] = "bottleneck"
    mid: int
    out: int
    stride: int

    def __post_init__(self) -> None:
        check_fields(self, mid=positive, out=positive, stride=positive)


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Merged 3x3 - 3x3 residual block; the stride sits on the first convolution."""

    label: ClassVar[str] = "basic_block"
    out: int
    stride: int

    def __post_init__(self) -> None:
        check_fields(self, out=positive, stride=positive)


@dataclass(frozen=True, slots=True)
class InvertedResidual:
    """Inverted residual with a linear bottleneck: widen, depthwise 3x3, narrow.

    ``expand`` is the ratio of hidden to input channels; at 1 there is no widening convolution.
    """

    label: ClassVar[str] = "inv_residual"
    expand: int
    out: int
    stride: int

    def __post_init__(self) -> None:
        check_fields(self, expand=positive, out=positive, stride=positive)


@dataclass(frozen=True, slots=True)
class MbConv:
    """The inverted residuals a blueprint may ask for: expand 1 or 6, stride 1 or 2."""

    label: ClassVar[str] = "mbconv"
    expand: int
    out: int
    stride: int

    def __post_init__(self) -> None:
        check_fields(self, expand=positive, out=positive, stride=positive)
        if self.expand not in (1, 6):
            fail(ValueError, "mbconv expand", self.expand, "1 or 6")
        if self.stride not in (1, 2):
            fail(ValueError, "mbconv stride", self.stride, "1 or 2")


class BlockStyle(Enum):
    """The residual blocks of the model language; ``DS`` halves height and width."""

    RESNET_1_3_1 = "RESNET_1_3_1"
    RESNET_1_3_1_DS = "RESNET_1_3_1_DS"
    RESNET_3_3 = "RESNET_3_3"
    RESNET_3_3_DS = "RESNET_3_3_DS"
    MB_E1_K3 = "MB_E1_K3"
    MB_E1_K3_DS = "MB_E1_K3_DS"
    MB_E6_K3 = "MB_E6_K3"
    MB_E6_K3_DS = "MB_E6_K3_DS"

    @property
    def stride(self) -> int:
        """2 for a downsampling style, else 1."""
        return 2 if self.name.endswith("_DS") else 1

    @property
    def has_mid(self) -> bool:
        """Whether the block has an inner width of its own (the bottleneck)."""
        return self.name.startswith("RESNET_1_3_1")

    @property
    def expand(self) -> int | None:
        """Expansion of an inverted residual; None for the ResNet styles."""
        return int(self.name[4]) if self.name.startswith("MB_E") else None

    @property
    def at_stride_one(self) -> BlockStyle:
        """The same block without downsampling."""
        return BlockStyle[self.name.removesuffix("_DS")]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Block:
    """A residual block by style. ``mid`` is None where the style has no width of its own inside."""

    label: ClassVar[str] = "block"
    mid: int | None
    out: int
    style: BlockStyle

    def __post_init__(self) -> None:
        check_fields(self, out=positive)
        if not isinstance(self.style, BlockStyle):
            fail(TypeError, "block style", self.style, "a BlockStyle")
        name = self.style.name
        if self.style.has_mid and self.mid is None:
            fail(ValueError, f"block mid of style {name}", None, f"block(mid, out, {name})")
        if not self.style.has_mid and self.mid is not None:
            fail(ValueError, f"block mid of style {name}", self.mid, f"block(out, {name})")
        if self.mid is not None:
            check_fields(self, mid=positive)
