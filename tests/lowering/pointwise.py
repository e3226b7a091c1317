"""The joined 1x1 convolution, called functionally on poisoned outputs, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS
from renaissance.lowering.launches import pointwise as pointwise_launches
from tests.graph.meaning import MEANING
from tests.lowering import maps
from tests.lowering.maps import NORM, normals, poisoned, wide
from tests.lowering.native import assert_close, run

Array = np.ndarray
MOST_BLOCKS = 3
"""Few blocks, so that each works on several tiles."""


def operands(seed: int, rows: int, c: int, k: int, prologue: int) -> dict[str, Array]:
    """Random operands: 0 no norm, 1 one, 2 a shortcut too, 3 one that is normalised."""
    x, shortcut, w = normals(seed, np.float16, (rows, c), (rows, c), (k, c))
    given = {"x": (x * 2 + np.linspace(-3, 3, c)).astype(np.float16), "w": w}
    given |= {"prev_mean": normals(seed, np.float32, (k,))[0], "prev_var": np.ones(k, np.float32)}
    vectors = normals(seed + 1, np.float32, *[(c,)] * 8)
    if prologue:
        given |= dict(zip(NORM, vectors[:4], strict=True))
    if prologue > 1:
        given["shortcut"] = shortcut
    if prologue > 2:
        given |= {f"shortcut_{n}": v for n, v in zip(NORM, vectors[4:], strict=True)}
    return given


def forward(
    given: Mapping[str, Array],
    activation: str | None,
    *,
    mask: bool = False,
    call: Callable[..., Any] = run,
) -> dict[str, Array]:
    """y and mask where there are any, output, mean, inverse_std, next_mean and next_var."""
    (rows, c), k = given["x"].shape, given["w"].shape[0]
    prologue = ("mean" in given) + ("shortcut" in given) + ("shortcut_mean" in given)
    shape = pointwise_launches.shape_of(c, k, prologue)
    assert shape is not None
    blocks = pointwise_launches.blocks_along(rows, k, shape, MOST_BLOCKS)
    vectors = ("mean", "inverse_std", "next_mean", "next_var")
    results = call(
        targets.POINTWISE_FORWARD, given["x"], *(given.get(n) for n in NORM),
        given.get("shortcut"), *(given.get(f"shortcut_{n}") for n in NORM),
        poisoned((rows, c), np.float16) if prologue else None, given["w"],
        poisoned((rows, k), np.float16), given["prev_mean"], given["prev_var"],
        *(poisoned((k,), np.float32) for _ in vectors), poisoned((blocks, 2 * k), np.float32),
        poisoned((rows, c // 8), np.uint8) if mask else None,
        rows=rows, c=c, k=k, type=1, activation=ACTIVATION_NUMBERS[activation],
        partial_rows=blocks, momentum=0.1, eps=1e-5,
    )  # fmt: skip
    names = (*(["y"] if prologue else []), "output", *vectors, "partial", "mask")
    return {n: np.asarray(v) for n, v in zip(names, results, strict=False) if n != "partial"}


def check(given: Mapping[str, Array], activation: str | None, found: Mapping[str, Array]) -> None:
    """What came out is what the separate operations mean: each of what the one before left."""
    operand = given["x"]
    if "mean" in given:
        op = "batch_norm_add_forward" if "shortcut" in given else "batch_norm_apply"
        theirs = MEANING[op](wide(given), {"activation": activation}, {})
        assert_close(found["y"], theirs["y"], np.float16)
        operand = found["y"]
    product = operand.astype(np.float64) @ given["w"].astype(np.float64).T
    assert_close(found["output"], product, np.float16)
    after = {n: wide(given)[n] for n in ("prev_mean", "prev_var")}
    after |= {"x": found["output"].astype(np.float64)[:, None, None], "gamma": 1.0, "beta": 0.0}
    theirs = MEANING["batch_norm_forward"](after, {"momentum": 0.1, "eps": 1e-5}, {})
    for name in ("mean", "inverse_std", "next_mean", "next_var"):
        np.testing.assert_allclose(found[name], theirs[name], rtol=2e-5, atol=2e-5)


def applied(given: Mapping[str, Array], activation: str | None) -> dict[str, Array]:
    """y and its mask by the separate operation."""
    names = ("x", "shortcut", *NORM, *(f"shortcut_{n}" for n in NORM))
    only = {n: given[n] for n in names if n in given}
    return {n: np.asarray(v) for n, v in maps.apply(only, activation, z=False, mask=True).items()}
