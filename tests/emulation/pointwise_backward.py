"""Pointwise convolutions by their device code on the processor, called as in ``tests.lowering``."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import Updated
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.table import launches_of
from tests.emulation.maps import FIELDS
from tests.emulation.run import emulate


def run(target: Target, *operands: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
    """``rn_pointwise_backward_data`` or ``rn_pointwise_backward`` on arrays; what was written comes
    back in order."""
    given = tuple(None if operand is None else Argument("array") for operand in operands)
    arrays = [
        np.array(o.value) if isinstance(o, Updated) else None if o is None else np.array(o)
        for o in operands
    ]
    (dy, w), norm, weight = arrays[:2], arrays[2:24], arrays[24:]
    layout, fields = "P" * len(norm), [*norm]
    for part in FIELDS[targets.BATCH_NORM_BACKWARD].split():
        name, letter = part.split(":")
        layout += letter
        fields.append(0 if name == "0" else attributes[name])
    product, *rest = launches_of(InPlaceCall(target, given, attributes))
    whole = [*fields, dy, w, attributes["k"], *weight]
    more = "PPqPPq" if weight else "PPq"
    whole += [attributes["width"]] if weight else []
    name = "PointwiseBackward" if weight else "PointwiseBackwardData"
    emulate(product, name, layout + more, whole)
    if weight:
        emulate(rest.pop(0), name, layout + more, whole)
    for launch in rest:
        emulate(launch, "BatchNormBackward", layout, fields)
    written = [isinstance(operand, Updated) for operand in operands]
    return tuple(a for a, is_result in zip(arrays, written, strict=True) if is_result)
