"""The joined 1x1 convolution by its device code on the processor."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.lowering.calls.ffi import Updated
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import emulate

STATISTICS = "P" * 8 + "qqqffi"
RECORD = f"{STATISTICS}{'P' * 13}qqiiP"


def run(target: Target, *operands: Any, **a: Any) -> tuple[np.ndarray, ...]:
    """The operation on arrays; what was written comes back in order."""
    given = tuple(None if operand is None else Argument("array") for operand in operands)
    arrays = [
        np.array(o.value) if isinstance(o, Updated) else None if o is None else np.array(o)
        for o in operands
    ]
    x_to_y, (w, output), behind, mask = arrays[:11], arrays[11:13], arrays[13:20], arrays[20]
    sizes = [a["rows"], a["k"], a["partial_rows"], a["momentum"], a["eps"], a["type"]]
    statistics = [output, *behind, *sizes]
    apply = [*x_to_y, None, mask, a["rows"], a["c"], a["type"], a["activation"]]
    product, finalise = launches_of(InPlaceCall(target, given, a))
    emulate(product, "PointwiseForward", RECORD, [*statistics, *apply, w])
    emulate(finalise, "BatchNormStatistics", STATISTICS, statistics)
    return tuple(
        array
        for array, operand in zip(arrays, operands, strict=True)
        if isinstance(operand, Updated) and array is not None
    )
