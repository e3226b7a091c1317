"""Operations on maps by their device code on the processor, called as in ``tests.lowering``."""

from __future__ import annotations

from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import Updated
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.table import launches_of
from tests.emulation.run import emulate

_CONV = "n:q h:q w:q c:q k:q p:q q:q r:i s:i stride:i pad:i groups:i 0:i"
_POOL = "n:q h:q w:q c:q p:q q:q kernel:i stride:i pad:i 0:i"
_GAP = "n:q pixels:q c:q type:i"
FIELDS: dict[Target, str] = {
    targets.CONV_FORWARD: f"{_CONV} workspace_bytes:q type:i y_type:i",
    targets.CONV_BACKWARD_WEIGHT: f"{_CONV} workspace_bytes:q type:i",
    targets.DEPTHWISE_CONV_FORWARD: f"{_CONV} type:i",
    targets.DEPTHWISE_CONV_BACKWARD_DATA: f"{_CONV} type:i",
    targets.DEPTHWISE_CONV_BACKWARD_WEIGHT: f"{_CONV} partial_rows:q type:i",
    targets.DEPTHWISE_CONV_BACKWARD: (
        f"{_CONV} partial_rows:q type:i y_activation:i x_activation:i"
    ),
    targets.BATCH_NORM_STATISTICS: "rows:q c:q partial_rows:q momentum:f eps:f type:i",
    targets.BATCH_NORM_APPLY: "rows:q c:q type:i activation:i",
    targets.BATCH_NORM_BACKWARD: (
        f"rows:q c:q partial_rows:q {_POOL} type:i activation:i argmax_bytes:i"
    ),
    targets.BATCH_NORM_FOLD: "c:q eps:f",
    targets.AFFINE_FORWARD: "rows:q c:q type:i activation:i",
    targets.ADD_FORWARD: "count:q type:i activation:i",
    targets.MAX_POOL_FORWARD: f"{_POOL} type:i activation:i argmax_bytes:i",
    targets.MAX_POOL_BACKWARD: f"{_POOL} type:i argmax_bytes:i",
    targets.AVERAGE_POOL_FORWARD: f"{_POOL} type:i",
    targets.AVERAGE_POOL_BACKWARD: f"{_POOL} type:i",
    targets.GLOBAL_AVERAGE_POOL_FORWARD: f"{_GAP} y_type:i",
    targets.GLOBAL_AVERAGE_POOL_BACKWARD: _GAP,
    targets.GAP_FC_BACKWARD_DATA: "n:q pixels:q c:q k:q type:i",
    targets.CHANNEL_PADDING: "pixels:q x_channels:q y_channels:q type:i",
}
"""What follows the pointers of each record: attributes by name, with their letters for struct; 0 is
the gap behind a record inside another."""


def run(target: Target, *operands: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
    """The operation on arrays; what was written comes back in order."""
    given = tuple(None if operand is None else Argument("array") for operand in operands)
    results: list[np.ndarray] = []
    fields: list[Any] = []
    for operand in operands:
        if isinstance(operand, Updated):
            results.append(np.array(operand.value))
            fields.append(results[-1])
        else:
            fields.append(None if operand is None else np.ascontiguousarray(operand))
    layout = "P" * len(fields)
    for part in FIELDS[target].split():
        name, letter = part.split(":")
        layout += letter
        fields.append(0 if name == "0" else attributes[name])
    record = "".join(word.capitalize() for word in target.name.removeprefix("rn_").split("_"))
    for launch in launches_of(InPlaceCall(target, given, attributes)):
        emulate(launch, record, layout, fields)
    return tuple(results)
