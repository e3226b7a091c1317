"""Operations on maps, called functionally on poisoned outputs, for tests and for measurements.

A result starts as NaN (255 where it is bytes), so an element that nobody writes is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import ACTIVATION_NUMBERS, Updated, type_number
from renaissance.lowering.fused.convolutions import depthwise_pieces
from renaissance.lowering.fused.norms import PARTIAL_ROWS, partial_rows
from renaissance.lowering.launches.depthwise_backward import pieces_of
from renaissance.lowering.launches.depthwise_norm import cut_of
from tests.lowering.native import on_device, run

Array = np.ndarray
NORM = ("gamma", "beta", "mean", "inverse_std")
WORKSPACE_BYTES = 8 << 20 if on_device() else 0
"""Scratch of a convolution: the host's loops need none."""


def poisoned(shape: tuple[int, ...], dtype: Any) -> Updated:
    """A result that must be written whole."""
    is_float = np.issubdtype(np.dtype(dtype), np.floating)
    return Updated(np.full(shape, np.nan if is_float else 255, dtype))


def workspace() -> Updated | None:
    """Scratch of a convolution, where it needs one."""
    return poisoned((WORKSPACE_BYTES,), np.uint8) if WORKSPACE_BYTES else None


def normals(seed: int, dtype: Any, *shapes: tuple[int, ...]) -> list[Array]:
    """Normal random arrays."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def outputs(extent: int, kernel: int, stride: int, pad: int) -> int:
    """Positions of a window along an axis."""
    return (extent + 2 * pad - kernel) // stride + 1


def conv_sizes(x: tuple[int, ...], w: tuple[int, ...], stride: int, pad: int) -> dict[str, int]:
    """Attributes of a convolution, by the shapes of x and w."""
    (n, h, width, c), (k, r, s, channels) = x, w
    p, q = outputs(h, r, stride, pad), outputs(width, s, stride, pad)
    sizes = {"n": n, "h": h, "w": width, "c": c, "k": k, "p": p, "q": q, "r": r, "s": s}
    return {**sizes, "stride": stride, "pad": pad, "groups": c // channels}


def conv(x: Array, w: Array, dy: Array, stride: int, pad: int) -> dict[str, Array]:
    """y, dx and dw of a dense or grouped convolution."""
    sizes = {**conv_sizes(x.shape, w.shape, stride, pad), "type": type_number(x.dtype)}
    sizes["workspace_bytes"] = WORKSPACE_BYTES
    given = {"y_type": sizes["type"], **sizes}
    scratch = workspace()
    y, *_ = run(targets.CONV_FORWARD, x, w, poisoned(dy.shape, x.dtype), scratch, **given)
    dx, *_ = run(targets.CONV_BACKWARD_DATA, dy, w, poisoned(x.shape, x.dtype), scratch, **sizes)
    dw, *_ = run(targets.CONV_BACKWARD_WEIGHT, x, dy, poisoned(w.shape, x.dtype), scratch, **sizes)
    return {"y": y, "dx": dx, "dw": dw}


def conv_statistics(
    x: Array, w: Array, prev: Mapping[str, Array], stride: int, pad: int
) -> dict[str, Array]:
    """y of a dense convolution, and mean, inverse_std, next_mean and next_var of y."""
    sizes: dict[str, Any] = conv_sizes(x.shape, w.shape, stride, pad)
    shape = sizes["n"], sizes["p"], sizes["q"], sizes["k"]
    pieces = partial_rows(int(np.prod(shape[:3])), shape[3])
    number = type_number(x.dtype)
    names = ("mean", "inverse_std", "next_mean", "next_var")
    y, *results = run(
        targets.CONV_FORWARD_STATISTICS, x, w, poisoned(shape, x.dtype), workspace(), prev["mean"],
        prev["var"], *(poisoned((shape[3],), np.float32) for _ in names),
        poisoned((pieces, 2 * shape[3]), np.float32), **sizes, type=number, y_type=number,
        workspace_bytes=WORKSPACE_BYTES, partial_rows=pieces, momentum=0.1, eps=1e-5,
    )  # fmt: skip
    results = results[1:] if WORKSPACE_BYTES else results
    return {"y": y, **dict(zip(names, results, strict=False))}


def depthwise(x: Array, w: Array, dy: Array, stride: int, pad: int) -> dict[str, Array]:
    """y, dx and dw of a depthwise convolution."""
    sizes: dict[str, Any] = conv_sizes(x.shape, w.shape, stride, pad)
    sizes["type"] = type_number(x.dtype)
    (y,) = run(targets.DEPTHWISE_CONV_FORWARD, x, w, poisoned(dy.shape, x.dtype), **sizes)
    (dx,) = run(targets.DEPTHWISE_CONV_BACKWARD_DATA, dy, w, poisoned(x.shape, x.dtype), **sizes)
    pieces = depthwise_pieces(sizes, 1 << 20)
    partial = poisoned((pieces, w.size), np.float32) if pieces > 1 else None
    target = targets.DEPTHWISE_CONV_BACKWARD_WEIGHT
    result = poisoned(w.shape, x.dtype)
    dw, *_ = run(target, x, dy, result, partial, partial_rows=pieces, **sizes)
    return {"y": y, "dx": dx, "dw": dw}


def depthwise_norm(
    given: Mapping[str, Array], params: Mapping[str, Any], *, stored: bool, run: Any = run
) -> dict[str, Array]:
    """activated (where stored), y and its statistics of a depthwise convolution of act(norm(x)).

    Args:
        given: x, w, prev_mean, prev_var and, where there is a norm, its constants.
        params: stride and activation.
        stored: Whether the activated map is wanted.
        run: What runs the operation.
    """
    x, w, c = given["x"], given["w"], given["x"].shape[-1]
    sizes: dict[str, Any] = conv_sizes(x.shape, w.shape, params["stride"], 1)
    cut = cut_of(sizes, PARTIAL_ROWS)
    names = ("mean", "inverse_std", "next_mean", "next_var")
    constants = _norm(
        {**given, "mean": given.get("norm_mean"), "inverse_std": given.get("norm_std")}
    )
    shape = sizes["n"], sizes["p"], sizes["q"], c
    results = run(
        targets.DEPTHWISE_NORM_FORWARD, x, *constants,
        poisoned(x.shape, x.dtype) if stored else None, w, poisoned(shape, x.dtype),
        given["prev_mean"], given["prev_var"], *(poisoned((c,), np.float32) for _ in names),
        poisoned((cut.pieces, 2 * c), np.float32), **sizes, **cut.attributes,
        type=type_number(x.dtype), momentum=0.1, eps=1e-5,
        activation=ACTIVATION_NUMBERS[params.get("activation")],
    )  # fmt: skip
    order = (*(("activated",) if stored else ()), "y", *names)
    return dict(zip(order, results, strict=False))


def depthwise_backward(
    given: Mapping[str, Array],
    stride: int,
    pad: int,
    y_activation: str | None,
    x_activation: str | None,
) -> dict[str, Array]:
    """dx and dw of a depthwise convolution in one pass, and partial sums for the norm before it.

    Args:
        given: dy, w and x; with ``y_mean`` y, the constants of its norm, dgamma and dbeta too; with
            ``x_mean`` the constants of the norm before the convolution.
        stride: Of the convolution.
        pad: Of the convolution.
        y_activation: Behind the norm of y.
        x_activation: Between the norm of x and the convolution.
    """
    x, w, dtype = given["x"], given["w"], given["x"].dtype
    sizes: dict[str, Any] = conv_sizes(x.shape, w.shape, stride, pad)
    pieces, c, is_normed = pieces_of(sizes), w.shape[0], "x_mean" in given
    results = run(
        targets.DEPTHWISE_CONV_BACKWARD, given["dy"], given.get("y"), *_norm(given, "y_"),
        given.get("dgamma"), given.get("dbeta"), w, x, *_norm(given, "x_"),
        poisoned(x.shape, dtype), poisoned(w.shape, dtype), poisoned((pieces, w.size), np.float32),
        poisoned((pieces, 2 * c), np.float32) if is_normed else None, **sizes,
        partial_rows=pieces, type=type_number(dtype),
        y_activation=ACTIVATION_NUMBERS[y_activation],
        x_activation=ACTIVATION_NUMBERS[x_activation],
    )  # fmt: skip
    found = dict(zip(("dx", "dw", "partial", "sums"), results, strict=False))
    del found["partial"]
    return found


def statistics(
    x: Array, prev: Mapping[str, Array], momentum: float, eps: float
) -> dict[str, Array]:
    """mean, inverse_std, next_mean and next_var of a map."""
    c = x.shape[-1]
    rows = x.size // c
    pieces = partial_rows(rows, c)
    names = ("mean", "inverse_std", "next_mean", "next_var")
    results = run(
        targets.BATCH_NORM_STATISTICS, x, prev["mean"], prev["var"],
        *(poisoned((c,), np.float32) for _ in names), poisoned((pieces, 2 * c), np.float32),
        rows=rows, c=c, partial_rows=pieces, momentum=momentum, eps=eps, type=type_number(x.dtype),
    )  # fmt: skip
    return dict(zip(names, results, strict=False))


def _norm(given: Mapping[str, Array], prefix: str = "") -> tuple[Any, ...]:
    return tuple(given.get(f"{prefix}{name}") for name in NORM)


def apply(
    given: Mapping[str, Array], activation: str | None, z: bool, mask: bool = False
) -> dict[str, Array]:
    """y, and z and the mask of the activation's slopes where wanted, of act(norm(x) + shortcut)."""
    x = given["x"]
    c = given["mean"].size
    results = run(
        targets.BATCH_NORM_APPLY, x, *_norm(given), given.get("shortcut"),
        *_norm(given, "shortcut_"), poisoned(x.shape, x.dtype),
        poisoned(x.shape, x.dtype) if z else None,
        poisoned((*x.shape[:-1], c // 8), np.uint8) if mask else None,
        rows=x.size // c, c=c, type=type_number(x.dtype), activation=ACTIVATION_NUMBERS[activation],
    )  # fmt: skip
    names = ("y", *(["z"] if z else []), *(["mask"] if mask else []))
    return dict(zip(names, results, strict=True))


NO_POOL = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad", "argmax_bytes"), 0)


def norm_backward(
    given: Mapping[str, Array],
    activation: str | None,
    names: tuple[str, ...],
    pool: Mapping[str, int] | None = None,
    left: Array | None = None,
) -> dict[str, Array]:
    """The gradients of the named operands, from x, dy, the norm's constants, gate, argmax, mask.

    Where partial sums are left from before, a device does not make them again.
    """
    x, dtype = given["x"], given["x"].dtype
    c = given["mean"].size
    rows = x.size // c
    pieces = partial_rows(rows, c) if left is None else len(left)
    sums = 4 if "shortcut_mean" in given else 2
    order = ("dx", "dgamma", "dbeta", "dshortcut", "dshortcut_gamma", "dshortcut_beta")
    vectors = {name: ((c,), np.float32) for name in order if name not in ("dx", "dshortcut")}
    maps = dict.fromkeys(("dx", "dshortcut"), (x.shape, dtype))
    places = {**vectors, **maps}
    results = run(
        targets.BATCH_NORM_BACKWARD, given["dy"], given.get("gate"), given.get("argmax"), x,
        *_norm(given), given.get("shortcut"), *_norm(given, "shortcut_"),
        *(poisoned(*places[name]) if name in names else None for name in order),
        poisoned((pieces, sums * c), np.float32) if left is None else Updated(left),
        given.get("addend"), given.get("mask"),
        **{**NO_POOL, **(pool or {}), "c": c}, rows=rows, partial_rows=pieces,
        summed=int(left is not None), type=type_number(dtype),
        activation=ACTIVATION_NUMBERS[activation],
    )  # fmt: skip
    return dict(zip((name for name in order if name in names), results, strict=False))


def pool_sizes(x: tuple[int, ...], kernel: int, stride: int, pad: int) -> dict[str, int]:
    """Attributes of a pool, by the shape of x."""
    n, h, w, c = x
    p, q = outputs(h, kernel, stride, pad), outputs(w, kernel, stride, pad)
    sizes = {"n": n, "h": h, "w": w, "c": c, "p": p, "q": q}
    return {**sizes, "kernel": kernel, "stride": stride, "pad": pad}


def on_a_grid(whole: Array, stride: int) -> tuple[Array, Array, dict[str, int]]:
    """A map (n, h, w, c) with zeros but on every stride-th row and column; those pixels alone; and
    the attributes that tell a norm's backward where they belong."""
    n, h, w, _ = whole.shape
    small = np.ascontiguousarray(whole[:, ::stride, ::stride])
    spread = np.zeros_like(whole)
    spread[:, ::stride, ::stride] = small
    p, q = small.shape[1:3]
    return spread, small, {"n": n, "h": h, "w": w, "p": p, "q": q, "stride": stride}


def pooled_shape(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of a pool's output."""
    return sizes["n"], sizes["p"], sizes["q"], sizes["c"]


def max_pool(
    given: Mapping[str, Array], sizes: Mapping[str, int], activation: str | None = None
) -> dict[str, Array]:
    """y and argmax; of act(norm(x)) where the norm's constants are given."""
    x, shape = given["x"], pooled_shape(sizes)
    small = sizes["kernel"] ** 2 <= 256
    argmax = poisoned(shape, np.uint8 if small else np.int32)
    results = run(
        targets.MAX_POOL_FORWARD, x, *_norm(given), poisoned(shape, x.dtype), argmax,
        **sizes, type=type_number(x.dtype), activation=ACTIVATION_NUMBERS[activation],
        argmax_bytes=1 if small else 4,
    )  # fmt: skip
    return dict(zip(("y", "argmax"), results, strict=True))


def wide(given: Mapping[str, Any]) -> dict[str, Array]:
    """Operands in double, for a reference."""
    return {name: np.asarray(value, np.float64) for name, value in given.items()}
