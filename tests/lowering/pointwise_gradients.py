"""Both gradients of pointwise convolutions, called functionally on poisoned outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.launches.pointwise_gradients import partial_rows
from tests.lowering.maps import NO_POOL, Array, poisoned
from tests.lowering.native import run
from tests.lowering.pointwise_backward import ORDER

RESULTS = ("product", "dx", "dgamma", "dbeta", "dw")


def gradients(
    given: Mapping[str, Array], activation: str | None, call: Any = run
) -> dict[str, Array]:
    """What ``rn_pointwise_backward`` leaves; ``product`` is dz, in the product's place."""
    x, w = given["x"], given["w"]
    (rows, c), k = x.shape, w.shape[0]
    sizes = {**NO_POOL, "c": c, "rows": rows, "k": k, "type": 1, "partial_rows": 1, "width": rows}
    sizes["activation"] = ACTIVATION_NUMBERS[activation]
    values: dict[str, Any] = dict(given)
    values |= {name: poisoned(x.shape, np.float16) for name in ("product", "dx")}
    values |= {name: poisoned((c,), np.float32) for name in ("dgamma", "dbeta")}
    values["dw"] = poisoned(w.shape, np.float16)
    order = (*ORDER, "dw", "weight_partial")
    target = targets.POINTWISE_BACKWARD
    made = tuple(Argument(n) if n in values else None for n in order)
    blocks = sizes["partial_rows"] = partial_rows(InPlaceCall(target, made, sizes))
    values["partial"] = poisoned((blocks, 2 * c), np.float32)
    values["weight_partial"] = poisoned((blocks, k * c), np.float32)
    results = call(target, *(values.get(name) for name in order), **sizes)
    written = [n for n in order if n in (*RESULTS, "partial", "weight_partial")]
    return dict(zip(written, results, strict=True))


def filters_gradient(given: Mapping[str, Array], activation: str | None) -> Array:
    """dw in double, of the convolution's input as it would be rounded in memory."""
    x, dy = given["x"].astype(np.float64), given["dy"].astype(np.float64)
    z = (x - given["mean"]) * (given["gamma"] * given["inverse_std"]) + given["beta"]
    top = {None: np.inf, "relu": np.inf, "relu6": 6.0}[activation]
    a = z if activation is None else np.clip(z, 0.0, top)
    return np.asarray(dy.T @ a.astype(np.float16).astype(np.float64))
