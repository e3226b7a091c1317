"""The closed vocabularies of the framework: shapes, dtypes, regions, banks, graph ids.

Everything here is plain data. A number in these enums is part of the contract: memory is laid out
in the order of :class:`Region`, and executables are addressed by :class:`GraphId`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

import numpy as np


class Shape(NamedTuple):
    """An NHWC shape, always four-dimensional: a flat vector of C values is ``(n, 1, 1, c)``."""

    n: int
    h: int
    w: int
    c: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.n * self.h * self.w * self.c

    @property
    def is_spatial(self) -> bool:
        """Whether a height or width is left (False after ``gap``, ``flatten`` and ``fc``)."""
        return self.h != 1 or self.w != 1

    def with_batch(self, n: int) -> Shape:
        """The same map for a batch of ``n``."""
        return self._replace(n=n)

    def __str__(self) -> str:
        return "x".join(str(d) for d in self)


class DType(Enum):
    """Element types a planned tensor can have."""

    FP32 = "float32"
    FP16 = "float16"
    FP64 = "float64"
    INT32 = "int32"
    INT8 = "int8"
    UINT8 = "uint8"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return np.dtype(self.value).itemsize

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype."""
        return np.dtype(self.value)


class Precision(Enum):
    """How a program computes. Statistics, losses, norms and master weights are never below fp32."""

    FP32 = "fp32"
    AMP = "amp"
    FP64 = "fp64"

    @property
    def master(self) -> DType:
        """Type of master weights, moments, statistics and losses."""
        return DType.FP64 if self is Precision.FP64 else DType.FP32

    @property
    def compute(self) -> DType:
        """Type of activations, compute weights and raw matrix gradients."""
        return DType.FP16 if self is Precision.AMP else self.master


class Phase(IntEnum):
    """Life cycle of a task. One way only."""

    PLANNING = 0
    MEMORY_LOCKED = 1
    COMPILED = 2


class StreamKind(Enum):
    """Device streams. Side streams are forked and joined inside one custom call."""

    TRANS = "trans"
    COMP_1 = "comp_1"
    COMP_2 = "comp_2"
    COMP_3 = "comp_3"
    UPDATE = "update"


class Bank(Enum):
    """A donated byte array. Regions lie end to end inside their bank."""

    PERSISTENT = "persistent"
    SCRATCH = "scratch"
    INPUT_A = "input_a"
    INPUT_B = "input_b"


class Region(IntEnum):
    """The 68 memory regions, low to high, and a sentinel."""

    # BN running statistics, and the ones this step produces
    B_PREV_MEAN = 1
    B_PREV_VAR = 2
    B_NEXT_MEAN = 3
    B_NEXT_VAR = 4
    # BN folded to an affine map, for inference
    W_EQ_BIAS = 5
    W_EQ_SCALE = 6
    # fp32 master weights
    W_BN_BIAS = 7
    W_BN_WEIGHT = 8
    W_FC_BIAS = 9
    W_FC_WEIGHT = 10
    W_FIRST_CONV = 11
    W_DEEP_CONV = 12
    # EMA weights
    E_BN_BIAS = 13
    E_BN_WEIGHT = 14
    E_FC_BIAS = 15
    E_FC_WEIGHT = 16
    E_FIRST_CONV = 17
    E_DEEP_CONV = 18
    E_FC_WEIGHT_FP16 = 19
    E_FIRST_CONV_FP16 = 20
    E_DEEP_CONV_FP16 = 21
    # fp16 compute weights
    A_FC_WEIGHT = 22
    A_FIRST_CONV = 23
    A_DEEP_CONV = 24
    # fp32 gradients: communication bucket 2, then bucket 1
    G_BN_BIAS = 25
    G_BN_WEIGHT = 26
    G_FC_BIAS = 27
    G_FC_WEIGHT = 28
    G_FIRST_CONV = 29
    G_DEEP_CONV = 30
    # this batch: loss, top-1 count, top-5 count
    R_RESULT = 31
    # fp16 gradients
    G_FC_WEIGHT_FP16 = 32
    G_FIRST_CONV_FP16 = 33
    G_DEEP_CONV_FP16 = 34
    # first moment
    M_BN_BIAS = 35
    M_BN_WEIGHT = 36
    M_FC_BIAS = 37
    M_FC_WEIGHT = 38
    M_FIRST_CONV = 39
    M_DEEP_CONV = 40
    # second moment
    V_BN_BIAS = 41
    V_BN_WEIGHT = 42
    V_FC_BIAS = 43
    V_FC_WEIGHT = 44
    V_FIRST_CONV = 45
    V_DEEP_CONV = 46
    # LARS norms
    N_FC_WEIGHT = 47
    N_FIRST_CONV = 48
    N_DEEP_CONV = 49
    # input double buffer
    I_A_LABEL = 50
    I_A_DATA = 51
    I_B_LABEL = 52
    I_B_DATA = 53
    # activations; rotating gradient slots
    F_FEATURE_FP32 = 54
    F_GRAD_SLOT_FP32 = 55
    F_FEATURE_FP16 = 56
    F_GRAD_SLOT_FP16 = 57
    # scalars: lr, loss scale, betas, step, bias corrections, seeds, batch sizes, NaN flag; masks
    S_SCALAR_FP32 = 58
    S_SCALAR_FP16 = 59
    S_SCALAR_INT32 = 60
    S_SCALAR_INT8 = 61
    S_MASK = 62
    # workspaces
    T_TEMP_FP32 = 63
    T_TEMP_FP16 = 64
    T_TEMP_INT32 = 65
    T_TEMP_INT8 = 66
    # predictions; epoch sums of loss, top-1, top-5
    R_PREDICTED_LABEL = 67
    R_RESULT_ACCUMULATED = 68
    # sentinel: one past the last region
    END = 69

    @property
    def bank(self) -> Bank:
        """The bank this region lies in."""
        if self.name.startswith("I_A"):
            return Bank.INPUT_A
        if self.name.startswith("I_B"):
            return Bank.INPUT_B
        if self.name[0] in "GFT" or self is Region.S_MASK:
            return Bank.SCRATCH
        return Bank.PERSISTENT


REGIONS: tuple[Region, ...] = tuple(r for r in Region if r is not Region.END)


class WeightGroup(Enum):
    """The six families of trainable tensors; each has twin regions (W, E, G, M, V, ...)."""

    BN_BIAS = "BN_BIAS"
    BN_WEIGHT = "BN_WEIGHT"
    FC_BIAS = "FC_BIAS"
    FC_WEIGHT = "FC_WEIGHT"
    FIRST_CONV = "FIRST_CONV"
    DEEP_CONV = "DEEP_CONV"

    def region(self, role: str) -> Region:
        """The twin region of a role.

        Roles: ``W`` master, ``E`` EMA, ``G`` gradient, ``M``/``V`` moments exist for all groups;
        ``A`` compute copy, ``E16``/``G16`` fp16 EMA and gradient, ``N`` LARS norms only where
        :attr:`has_compute_copy`.

        Raises:
            KeyError: the group has no twin in that role.
        """
        name = f"{role[0]}_{self.value}" + ("_FP16" if role in ("E16", "G16") else "")
        return Region[name]

    @property
    def has_compute_copy(self) -> bool:
        """Whether fp16 twins exist under AMP (matrix operands: fc and convolution weights)."""
        return self in (WeightGroup.FC_WEIGHT, WeightGroup.FIRST_CONV, WeightGroup.DEEP_CONV)

    @property
    def decays(self) -> bool:
        """Whether weight decay (and LARS) applies: convolution and fc weights only."""
        return self.has_compute_copy


class GraphId(IntEnum):
    """The 33 sub-graphs of a program."""

    TRANSFER_A = 0
    TRANSFER_B = 1
    FIRST_LAYER_FWD_A = 2
    FIRST_LAYER_FWD_B = 3
    DEEP_FWD_BWD = 4
    ZERO_GRAD = 5
    FIRST_LAYER_BWD_A = 6
    FIRST_LAYER_BWD_B = 7
    FIRST_COMM = 8
    DEEP_COMM = 9
    CAST_DEEP_GRAD_FP16_TO_FP32 = 10
    CAST_FIRST_GRAD_FP16_TO_FP32 = 11
    NAN_CHECK_AND_GRAD_SCALING = 12
    STATS_COMM = 13
    UPDATE_STATS = 14
    OPTIMIZER = 15
    EMA_UPDATE = 16
    INF_MAIN_A = 17
    INF_MAIN_B = 18
    INF_EMA_A = 19
    INF_EMA_B = 20
    CAST_MAIN_FP32_TO_FP16 = 21
    CAST_EMA_FP32_TO_FP16 = 22
    ACCUM_METRICS = 23
    ACCUM_METRICS_TRAIN_LAST = 24
    ACCUM_METRICS_VAL_LAST = 25
    VAL_RESULT_COMM = 26
    CLEAR_METRICS = 27
    SIMPLE_TASK_GRAPH = 28
    LARS_FC_OPT = 29
    LARS_FIRST_CONV_OPT = 30
    LARS_DEEP_CONV_OPT = 31
    UPDATE_BN_INF_PARAMS = 32


class Variant(IntEnum):
    """The six input-shape variants a program is compiled for."""

    TRAIN_BASE = 0
    TRAIN_LAST = 1
    TRAIN_LOWRES = 2
    TRAIN_LOWRES_LAST = 3
    VAL_BASE = 4
    VAL_LAST = 5

    @property
    def is_training(self) -> bool:
        """Whether the variant trains (the last two only infer)."""
        return self < Variant.VAL_BASE
