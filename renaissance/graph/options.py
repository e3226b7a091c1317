"""CompileOptions: everything besides the network itself that decides memory and topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from renaissance.core.errors import check_int, fail
from renaissance.core.types import DType, Shape, Variant

Resolution = tuple[int, int]


class ShapeId(NamedTuple):
    """Identity of an input shape. Variants of equal id share one plan and their executables."""

    n: int
    h: int
    w: int
    c: int

    def __str__(self) -> str:
        return "x".join(str(extent) for extent in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """What a network is compiled for. Sizes that are left out take the value of the full batch.

    Attributes:
        input_channels: Channels of the images, before any padding.
        batch: Rows of a full training batch.
        train_begin: (height, width) training starts with.
        train_end: (height, width) training ends with (progressive resolution).
        validation: (height, width) of validation.
        last_train_batch: Rows of the last training batch of an epoch.
        val_batch: Rows of a validation batch.
        last_val_batch: Rows of the last validation batch.
        amp: fp16 features and compute weights over fp32 masters.
        fuse: Whether neighbouring operations become one; follows ``amp`` by default.
        first_moment: Whether the optimizer keeps a first moment.
        second_moment: Whether the optimizer keeps a second moment.
        norms: Whether the optimizer needs norms of every weight and gradient (LARS).
        ema: Whether a moving average of the weights is kept.
        first_layer_frozen: Whether the first convolution keeps its initial weights.
        lr_table_length: Steps the learning-rate table in device memory covers.
        workspace_limit: Most bytes a convolution may ask for as scratch, a quarter of it for the
            gradient of its input; all of them share it.
    """

    input_channels: int
    batch: int
    train_begin: Resolution
    train_end: Resolution | None = None
    validation: Resolution | None = None
    last_train_batch: int | None = None
    val_batch: int | None = None
    last_val_batch: int | None = None
    amp: bool = False
    fuse: bool | None = None
    first_moment: bool = False
    second_moment: bool = False
    norms: bool = False
    ema: bool = False
    first_layer_frozen: bool = False
    lr_table_length: int = 1
    workspace_limit: int = 32 << 20

    def __post_init__(self) -> None:
        check_int("input_channels", self.input_channels, 1)
        check_int("batch", self.batch, 1)
        check_int("lr_table_length", self.lr_table_length, 1)
        check_int("workspace_limit", self.workspace_limit, 0)
        self._fill("last_train_batch", self.batch)
        self._fill("val_batch", self.batch)
        self._fill("last_val_batch", self.val_batch)
        self._fill("train_end", self.train_begin)
        self._fill("validation", self.train_begin)
        self._fill("fuse", self.amp)
        self._check_rows("last_train_batch", self.last_train_batch, self.batch)
        check_int("val_batch", self.val_batch, 1)
        self._check_rows("last_val_batch", self.last_val_batch, self.val_batch)
        for name in ("train_begin", "train_end", "validation"):
            _check_resolution(name, getattr(self, name))
        if self.fuse and not self.amp:
            fail(ValueError, "fuse", True, "False without amp: the fused kernels compute in fp16")

    def _fill(self, name: str, default: object) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, default)

    @staticmethod
    def _check_rows(name: str, value: int | None, full: int | None) -> None:
        check_int(name, value, 1, full)

    def shape_id(self, variant: Variant) -> ShapeId:
        """The input shape of a variant, channels not padded."""
        return ShapeId(self.rows(variant), *self.resolution(variant), self.input_channels)

    def rows(self, variant: Variant) -> int:
        """Rows of a batch in a variant."""
        full = self.batch if variant.is_training else self.val_batch
        last = self.last_train_batch if variant.is_training else self.last_val_batch
        is_last = variant in (Variant.TRAIN_LAST, Variant.TRAIN_LOWRES_LAST, Variant.VAL_LAST)
        rows = last if is_last else full
        assert rows is not None  # filled in by __post_init__
        return rows

    def resolution(self, variant: Variant) -> Resolution:
        """(height, width) of a variant."""
        lowres = variant in (Variant.TRAIN_LOWRES, Variant.TRAIN_LOWRES_LAST)
        chosen = self.train_end if lowres else self.train_begin
        chosen = chosen if variant.is_training else self.validation
        assert chosen is not None
        return chosen

    @property
    def sample_shape(self) -> Shape:
        """Shape of one training image at the first resolution."""
        return Shape(1, *self.train_begin, self.input_channels)

    @property
    def compute_dtype(self) -> DType:
        """Type of features and of the weights they meet."""
        return DType.FP16 if self.amp else DType.FP32


def _check_resolution(name: str, value: object) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        fail(TypeError, name, value, "a pair (height, width)")
    for axis, extent in zip(("height", "width"), value, strict=True):
        check_int(f"{name} {axis}", extent, 1)
