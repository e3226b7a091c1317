"""The tensors every network needs whatever its graph: weights and their twins, statistics, scalars.

One rule decides which regions a configuration keeps: :func:`roles`. All others stay empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from renaissance.core.types import DType, Region, WeightGroup
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.computation_graph.operands import Ref
from renaissance.graph.memory_plan.requirement import Requirement
from renaissance.graph.options import CompileOptions

ALIGNMENT = 256
"""Bytes every slot begins at a multiple of."""

MATRIX_SLOT_ELEMENTS = ALIGNMENT // DType.FP16.itemsize
"""Weights with fp16 twins fill whole multiples of this many elements in every twin region, so that
all twins of a tensor begin at the same element of their region."""

HALF_ROLES = frozenset({"A", "E16", "G16"})
GRADIENT_ROLES = frozenset({"G", "G16", "M", "V", "N"})

RESULT_NAMES = ("loss", "top1", "top5", "count")


def roles(options: CompileOptions, group: WeightGroup) -> tuple[str, ...]:
    """The roles in which a group of weights has tensors.

    ====  =======================  ==========================
    role  twin                     kept when
    ====  =======================  ==========================
    W     fp32 master              always
    E     moving average           ema
    E16   its fp16 copy            ema and amp, matrices
    A     fp16 compute copy        amp, matrices
    G     fp32 gradient            trained
    G16   fp16 gradient            trained and amp, matrices
    M, V  moments                  trained and kept by the optimizer
    N     norms                    trained and LARS, matrices
    ====  =======================  ==========================

    *Matrices* are fully connected and convolution weights; all are *trained* but a frozen first
    convolution.
    """
    matrix = group.has_compute_copy
    kept = {
        "W": True,
        "E": options.ema,
        "E16": options.ema and options.amp and matrix,
        "A": options.amp and matrix,
        "G": True,
        "G16": options.amp and matrix,
        "M": options.first_moment,
        "V": options.second_moment,
        "N": options.norms and matrix,
    }
    is_frozen = options.first_layer_frozen and group is WeightGroup.FIRST_CONV
    return tuple(r for r, keep in kept.items() if keep and not (is_frozen and r in GRADIENT_ROLES))


def persistent_requirements(plan: ArchPlan, options: CompileOptions) -> list[Requirement]:
    """All tensors that do not come from the graph's nodes."""
    return [
        *_weights(plan, options),
        *_statistics(plan, options),
        *_scalars(options),
        *_results(),
    ]


def _weights(plan: ArchPlan, options: CompileOptions) -> Iterator[Requirement]:
    for name, spec, layer in plan.weights():
        shape = plan.stored_weight_shape(layer, spec)
        unit = MATRIX_SLOT_ELEMENTS if spec.group.has_compute_copy else 1
        for role in roles(options, spec.group):
            dtype = DType.FP16 if role in HALF_ROLES else DType.FP32
            ref = Ref(spec.group.region(role), name)
            if role == "N":  # the norms of weight and gradient
                yield Requirement(ref, DType.FP32, (2,))
            else:
                yield Requirement(ref, dtype, shape, slot_elements=unit)


def _statistics(plan: ArchPlan, options: CompileOptions) -> Iterator[Requirement]:
    for name, spec, layer in plan.statistics():
        local = spec.name.upper()
        for when in ("PREV", "NEXT"):
            region = Region.__members__.get(f"B_{when}_{local}")
            if region is not None:
                yield Requirement(Ref(region, name), DType.FP32, spec.shape)
        if spec.name == "mean":
            yield from _folded(layer.name, spec.shape, "")
    for _, spec, layer in plan.statistics():
        if options.ema and spec.name == "mean":
            yield from _folded(layer.name, spec.shape, "_ema")


def _folded(layer: str, shape: tuple[int, ...], suffix: str) -> Iterator[Requirement]:
    for region, local in ((Region.W_EQ_BIAS, "bias"), (Region.W_EQ_SCALE, "scale")):
        yield Requirement(Ref(region, f"{layer}.{local}{suffix}"), DType.FP32, shape)


def _scalars(options: CompileOptions) -> Iterator[Requirement]:
    sizes = {"lr": 1, "loss_scale": 1, "bias_correction1": 1, "bias_correction2": 1}
    for name, size in {**sizes, "lr_table": options.lr_table_length}.items():
        yield Requirement(Ref(Region.S_SCALAR_FP32, name), DType.FP32, (size,))
    names = ("applied_steps", "skipped_steps", "clean_steps", "overflow_run", "nan_flag")
    for name, size in {**dict.fromkeys(names, 1), "seed": 2}.items():
        yield Requirement(Ref(Region.S_SCALAR_INT32, name), DType.INT32, (size,))


def _results() -> Iterator[Requirement]:
    for region in (Region.R_RESULT, Region.R_RESULT_ACCUMULATED):
        for name in RESULT_NAMES:
            yield Requirement(Ref(region, name), DType.FP32, (1,))
