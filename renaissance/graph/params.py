"""Parameter records: what a layer is asked for, checked the moment it is written down.

Every record is frozen, hashable and validated on construction, so a blueprint, a plan and a file
read back from disk obey the same rules. The order of the fields is the order of the arguments of
the factory that builds the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar

from renaissance.core.errors import check_int, check_real, fail

Check = Callable[[str, Any], Any]


def _flag(name: str, value: Any) -> bool:
    return value if isinstance(value, bool) else fail(TypeError, name, value, "True or False")


_positive: Check = partial(check_int, low=1)
_non_negative: Check = partial(check_int, low=0)
_momentum: Check = partial(check_real, low=0.0, high=1.0)
_epsilon: Check = partial(check_real, low=0.0, open_low=True)
_BATCH_NORM: dict[str, Check] = {"momentum": _momentum, "eps": _epsilon}


def _check(record: Any, **checks: Check) -> None:
    """Replace each named field by its checked and normalised value."""
    for field, check in checks.items():
        value = check(f"{record.label} {field}", getattr(record, field))
        object.__setattr__(record, field, value)


def _check_window(label: str, kernel: int, pad: int) -> None:
    """A pooling window must always cover at least one real pixel."""
    if 2 * pad > kernel:
        fail(ValueError, f"{label} pad", pad, f"at most half the window: {kernel} // 2")


# --- primitive layers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conv:
    """2-D convolution without bias: ``out`` filters of ``kernel`` x ``kernel``."""

    label: ClassVar[str] = "conv"
    out: int
    kernel: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        _check(self, out=_positive, kernel=_positive, stride=_positive, pad=_non_negative)


@dataclass(frozen=True, slots=True)
class ConvDw:
    """Depthwise convolution: one ``kernel`` x ``kernel`` filter per channel."""

    label: ClassVar[str] = "conv_dw"
    kernel: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        _check(self, kernel=_positive, stride=_positive, pad=_non_negative)


@dataclass(frozen=True, slots=True)
class GroupConv:
    """Convolution in ``groups`` independent slices of the channels."""

    label: ClassVar[str] = "group_conv"
    out: int
    groups: int
    kernel: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        _check(self, out=_positive, groups=_positive, kernel=_positive)
        _check(self, stride=_positive, pad=_non_negative)
        if self.out % self.groups:
            fail(ValueError, "group_conv out", self.out, f"a multiple of groups={self.groups}")


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Batch normalisation: running <- (1 - momentum) * running + momentum * batch."""

    label: ClassVar[str] = "bn"
    momentum: float = 0.1
    eps: float = 1e-5

    def __post_init__(self) -> None:
        _check(self, **_BATCH_NORM)


@dataclass(frozen=True, slots=True)
class Activation:
    """An element-wise activation; the kind says which."""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Inverted dropout: an element is zeroed with probability ``p``, the others scaled up."""

    label: ClassVar[str] = "dropout"
    p: float

    def __post_init__(self) -> None:
        _check(self, p=partial(check_real, low=0.0, high=1.0, open_high=True))


@dataclass(frozen=True, slots=True)
class Pool:
    """Maximum or average over a ``kernel`` x ``kernel`` window."""

    label: ClassVar[str] = "pool"
    kernel: int
    stride: int
    pad: int

    def __post_init__(self) -> None:
        _check(self, kernel=_positive, stride=_positive, pad=_non_negative)
        _check_window(self.label, self.kernel, self.pad)


@dataclass(frozen=True, slots=True)
class Gap:
    """Global average over height and width."""


@dataclass(frozen=True, slots=True)
class Fc:
    """Fully connected layer with ``out`` outputs."""

    label: ClassVar[str] = "fc"
    out: int
    bias: bool = True

    def __post_init__(self) -> None:
        _check(self, out=_positive, bias=_flag)


@dataclass(frozen=True, slots=True)
class Flatten:
    """Fold the axes of an NHWC map from ``start_dim`` on into the last one; N always stays."""

    label: ClassVar[str] = "flatten"
    start_dim: int = 1

    def __post_init__(self) -> None:
        _check(self, start_dim=partial(check_int, low=1, high=3))


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to say: identity, channel padding, residual markers."""


@dataclass(frozen=True, slots=True)
class Head:
    """Softmax and cross entropy over ``num_classes`` scores."""

    label: ClassVar[str] = "softmax_cross_entropy"
    num_classes: int

    def __post_init__(self) -> None:
        _check(self, num_classes=_positive)


# --- composite layers: written in a blueprint, or found in a plan by merging ---------------------


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
        _check(self, out=_positive, kernel=_positive, stride=_positive, pad=_non_negative)
        _check(self, **_BATCH_NORM)


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
        _check(self, out=_positive, conv_kernel=_positive, conv_stride=_positive)
        _check(self, conv_pad=_non_negative, pool_kernel=_positive, pool_stride=_positive)
        _check(self, pool_pad=_non_negative, **_BATCH_NORM)
        _check_window(f"{self.label} pool", self.pool_kernel, self.pool_pad)


@dataclass(frozen=True, slots=True)
class GapFc:
    """Global average pool and fully connected layer as one unit."""

    label: ClassVar[str] = "gap_fc"
    out: int
    bias: bool

    def __post_init__(self) -> None:
        _check(self, out=_positive, bias=_flag)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Merged 1x1 - 3x3 - 1x1 residual block; the stride sits on the 3x3 convolution."""

    label: ClassVar[str] = "bottleneck"
    mid: int
    out: int
    stride: int

    def __post_init__(self) -> None:
        _check(self, mid=_positive, out=_positive, stride=_positive)


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Merged 3x3 - 3x3 residual block; the stride sits on the first convolution."""

    label: ClassVar[str] = "basic_block"
    out: int
    stride: int

    def __post_init__(self) -> None:
        _check(self, out=_positive, stride=_positive)


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
        _check(self, expand=_positive, out=_positive, stride=_positive)


@dataclass(frozen=True, slots=True)
class MbConv:
    """The inverted residuals a blueprint may ask for: expand 1 or 6, stride 1 or 2."""

    label: ClassVar[str] = "mbconv"
    expand: int
    out: int
    stride: int

    def __post_init__(self) -> None:
        _check(self, expand=_positive, out=_positive, stride=_positive)
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
        _check(self, out=_positive)
        if not isinstance(self.style, BlockStyle):
            fail(TypeError, "block style", self.style, "a BlockStyle")
        name = self.style.name
        if self.style.has_mid and self.mid is None:
            fail(ValueError, f"block mid of style {name}", None, f"block(mid, out, {name})")
        if not self.style.has_mid and self.mid is not None:
            fail(ValueError, f"block mid of style {name}", self.mid, f"block(out, {name})")
        if self.mid is not None:
            _check(self, mid=_positive)
