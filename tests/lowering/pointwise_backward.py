"""Pointwise convolutions, called functionally on poisoned outputs, for tests and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.launches.pointwise_backward import planned_shape, row_blocks
from tests.graph.meaning import MEANING
from tests.lowering.maps import NO_POOL, NORM, Array, normals, poisoned, wide
from tests.lowering.native import run

RESULTS = ("dx", "dgamma", "dbeta", "dshortcut", "dshortcut_gamma", "dshortcut_beta")
PLACES = ("product", "gate", "argmax", "x", *NORM, "shortcut", *(f"shortcut_{n}" for n in NORM))
ORDER = ("dy", "w", *PLACES, *RESULTS, "partial", "addend", "mask")
"""Operands of ``rn_pointwise_backward_data`` by name, in order."""


def operands(rows: int, k: int, c: int, variant: str) -> dict[str, Array]:
    """Random operands.

    Args:
        rows: Pixels.
        k: Channels of dy.
        c: Channels of x.
        variant: Words that say what there is: gate or bits, addend, shortcut or norms.
    """
    dy, x, addend, y, shortcut = normals(rows, np.float16, (rows, k), *[(rows, c)] * 4)
    (w,) = normals(k, np.float16, (k, c))
    given = {"dy": dy, "w": (w / np.sqrt(k)).astype(np.float16), **constants(x)}
    if "gate" in variant:
        given["gate"] = y
    if "bits" in variant:
        given["mask"] = np.packbits(y > 0, axis=1, bitorder="little")
    if "addend" in variant:
        given["addend"] = addend
    if "norms" in variant:
        given |= {
            ("shortcut" if n == "x" else f"shortcut_{n}"): v for n, v in constants(shortcut).items()
        }
    return given


def constants(x: Array) -> dict[str, Array]:
    """x and the constants of a norm over it."""
    gamma, beta = normals(3, np.float32, x.shape[-1:], x.shape[-1:])
    flat = x.astype(np.float64)
    mean, var = flat.mean(0).astype(np.float32), flat.var(0)
    inverse_std = (1 / np.sqrt(var + 1e-5)).astype(np.float32)
    return {"x": x, "gamma": gamma, "beta": beta, "mean": mean, "inverse_std": inverse_std}


def backward_data(
    given: Mapping[str, Array],
    activation: str | None,
    names: tuple[str, ...],
    call: Any = run,
    grid: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """The named results, and ``product``: what lies where the product was put.

    With a grid (:func:`tests.lowering.maps.on_a_grid`) the addend is of its pixels alone.
    """
    x = given["x"]
    (rows, c), k = x.shape, given["w"].shape[0]
    sizes = {**NO_POOL, **(grid or {}), "c": c, "rows": rows, "k": k, "type": 1, "partial_rows": 1}
    sizes["activation"] = ACTIVATION_NUMBERS[activation]
    vectors = {name: ((c,), np.float32) for name in RESULTS if name not in ("dx", "dshortcut")}
    places = {**vectors, **dict.fromkeys(("dx", "dshortcut", "product"), (x.shape, np.float16))}
    takes_product = "dshortcut" in names and "shortcut_mean" not in given
    wanted = names if takes_product else ("product", *names)
    values: dict[str, Any] = {**given, **{name: poisoned(*places[name]) for name in wanted}}
    values["partial"] = ()
    target = targets.POINTWISE_BACKWARD_DATA
    made = tuple(Argument(n) if n in values else None for n in ORDER)
    shape = planned_shape(InPlaceCall(target, made, sizes))
    assert shape is not None
    sizes["partial_rows"] = row_blocks(sizes, shape)
    sums = 3 if "shortcut_mean" in given else 2
    values["partial"] = poisoned((sizes["partial_rows"], sums * c), np.float32)
    results = call(target, *(values.get(name) for name in ORDER), **sizes)
    written = [n for n in ORDER if n in (*wanted, "partial")]
    return dict(zip(written, results, strict=True))


def meaning(given: Mapping[str, Array], activation: str | None) -> dict[str, Array]:
    """What the results mean, in double; the product is rounded as it would be in memory."""
    exact = wide(given)
    exact["dy"] = (exact["dy"] @ exact["w"]).astype(np.float16).astype(np.float64)
    if "mask" in given:
        exact["gate"] = np.unpackbits(given["mask"], axis=1, bitorder="little").astype(np.float64)
    maps = {name: value[None, None] for name, value in exact.items() if value.ndim == 2}
    read = {**exact, **maps}
    is_add = bool({"gate", "shortcut_mean"} & set(exact))
    op = "batch_norm_add_backward" if is_add else "batch_norm_backward"
    found = MEANING[op]({**read, "y": read.get("gate")}, {"activation": activation}, {})
    found = {"dshortcut": read["dy"] + read.get("addend", 0.0), **found}
    found["dshortcut_beta"] = found["dbeta"]
    return {name: np.squeeze(value) for name, value in found.items()}


def names_of(variant: str) -> tuple[str, ...]:
    """The results of a variant, by the words of :func:`operands`."""
    names: tuple[str, ...] = ("dx", "dgamma", "dbeta")
    if "norms" in variant:
        return (*names, "dshortcut", "dshortcut_gamma", "dshortcut_beta")
    return (*names, "dshortcut") if "shortcut" in variant else names
