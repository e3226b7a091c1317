"""Records of the primitive layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from renaissance.core.errors import check_int, check_real, fail
from renaissance.graph.params.checks import (
    BATCH_NORM,
    check_fields,
    check_window,
    flag,
    non_negative,
    positive,
)


@dataclass(frozen=True, slots=True)
class Conv:
    """2-D convolution without bias: ``out`` filters of ``kernel`` x ``kernel``."""

    label: ClassVar[str] = "conv"
    out: int
    kernel: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        check_fields(self, out=positive, kernel=positive, stride=positive, pad=non_negative)


@dataclass(frozen=True, slots=True)
class ConvDw:
    """Depthwise convolution: one ``kernel`` x ``kernel`` filter per channel."""

    label: ClassVar[str] = "conv_dw"
    kernel: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        check_fields(self, kernel=positive, stride=positive, pad=non_negative)


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
        check_fields(self, out=positive, groups=positive, kernel=positive)
        check_fields(self, stride=positive, pad=non_negative)
        if self.out % self.groups:
            fail(ValueError, "group_conv out", self.out, f"a multiple of groups={self.groups}")


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Batch normalisation: running <- (1 - momentum) * running + momentum * batch."""

    label: ClassVar[str] = "bn"
    momentum: float = 0.1
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_fields(self, **BATCH_NORM)


@dataclass(frozen=True, slots=True)
class Activation:
    """An element-wise activation; the kind says which."""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Inverted dropout: an element is zeroed with probability ``p``, the others scaled up."""

    label: ClassVar[str] = "dropout"
    p: float

    def __post_init__(self) -> None:
        check_fields(self, p=partial(check_real, low=0.0, high=1.0, open_high=True))


@dataclass(frozen=True, slots=True)
class Pool:
    """Maximum or average over a ``kernel`` x ``kernel`` window."""

    label: ClassVar[str] = "pool"
    kernel: int
    stride: int
    pad: int

    def __post_init__(self) -> None:
        check_fields(self, kernel=positive, stride=positive, pad=non_negative)
        check_window(self.label, self.kernel, self.pad)


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
        check_fields(self, out=positive, bias=flag)


@dataclass(frozen=True, slots=True)
class Flatten:
    """Fold the axes of an NHWC map from ``start_dim`` on into the last one; N always stays."""

    label: ClassVar[str] = "flatten"
    start_dim: int = 1

    def __post_init__(self) -> None:
        check_fields(self, start_dim=partial(check_int, low=1, high=3))


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to say: identity, channel padding, residual markers."""


@dataclass(frozen=True, slots=True)
class Head:
    """Softmax and cross entropy over ``num_classes`` scores."""

    label: ClassVar[str] = "softmax_cross_entropy"
    num_classes: int

    def __post_init__(self) -> None:
        check_fields(self, num_classes=positive)
