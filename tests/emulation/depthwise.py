"""``rn_depthwise_norm_forward`` by its device code on the processor."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import Updated
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import emulate

_CONV = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")
_STATISTICS = "P" * 8 + "qqqffii"
_LAYOUT = _STATISTICS + "P" * 8 + "q" * 7 + "i" * 7


def run(target: Target, *operands: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
    """The operation on arrays; what was written comes back in order."""
    assert target == targets.DEPTHWISE_NORM_FORWARD
    given = tuple(None if operand is None else Argument("array") for operand in operands)
    results: list[np.ndarray] = []
    arrays: list[np.ndarray | None] = []
    for operand in operands:
        if isinstance(operand, Updated):
            results.append(np.array(operand.value))
            arrays.append(results[-1])
        else:
            arrays.append(None if operand is None else np.ascontiguousarray(operand))
    a = attributes
    rows = a["n"] * a["p"] * a["q"]
    numbers = (rows, a["k"], a["partial_rows"], a["momentum"], a["eps"], a["type"], 0)
    statistics = [arrays[7], *arrays[8:], *numbers]
    fields = [*statistics, *arrays[:8], *(a[name] for name in _CONV), 0, a["activation"]]
    maps, finalise = launches_of(InPlaceCall(target, given, attributes))
    emulate(maps, "DepthwiseNormForward", _LAYOUT, fields)
    emulate(finalise, "BatchNormStatistics", _STATISTICS, statistics)
    return tuple(results)
