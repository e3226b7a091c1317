"""What every operation of the vocabulary means, in numpy: the plainest way to say it.

A meaning takes the operands read by role, the node's parameters, and the shapes of what it writes;
it returns what it writes by role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray

# -- activations ----------------------------------------------------------------------------------


def _sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


ACT: dict[str | None, Callable[[Array], Array]] = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "relu6": lambda z: np.clip(z, 0, 6),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "silu": lambda z: z * _sigmoid(z),
    "hardswish": lambda z: z * np.clip(z + 3, 0, 6) / 6,
}

FROM_Y: dict[str, Callable[[Array], Array]] = {
    "relu": lambda y: y > 0,
    "relu6": lambda y: (y > 0) & (y < 6),
    "leaky_relu": lambda y: np.where(y > 0, 1, 0.01),
    "elu": lambda y: np.where(y > 0, 1, y + 1),
    "sigmoid": lambda y: y * (1 - y),
    "tanh": lambda y: 1 - y * y,
}

FROM_Z: dict[str, Callable[[Array], Array]] = {
    "silu": lambda z: _sigmoid(z) * (1 + z * (1 - _sigmoid(z))),
    "hardswish": lambda z: np.where(z < -3, 0, np.where(z > 3, 1, (2 * z + 3) / 6)),
}


def _slope(reads: Mapping[str, Array], activation: str | None) -> Array | float:
    if activation is None:
        return 1.0
    if "mask" in reads:
        bits = np.unpackbits(reads["mask"].astype(np.uint8)[..., None], axis=-1, bitorder="little")
        return bits.reshape(reads["x"].shape)
    return FROM_Y[activation](reads["y"]) if "y" in reads else FROM_Z[activation](reads["z"])


def _slope_at(z: Array, activation: str | None) -> Array | float:
    if activation is None:
        return 1.0
    return FROM_Z[activation](z) if activation in FROM_Z else FROM_Y[activation](ACT[activation](z))


# -- fully connected ------------------------------------------------------------------------------


def _rows(x: Array) -> Array:
    return x.reshape(len(x), -1)


def fc_forward(r, p, s):
    z = _rows(r["x"]) @ r["w"].T + r.get("bias", 0)
    return {"z": z, "y": ACT[p.get("activation")](z)}


def fc_backward_data(r, p, s):
    dx = (_rows(r["dy"]) @ r["w"]).reshape(s["dx"])
    return {"dx": dx * _slope(r, p.get("activation"))}


def fc_backward_weight(r, p, s):
    dy = _rows(r["dy"])
    return {"dw": dy.T @ _rows(r["x"]), "dbias": dy.sum(0)}


def gap_fc_forward(r, p, s):
    pooled = r["x"].mean((1, 2))
    return {"pooled": pooled, "y": pooled @ r["w"].T + r.get("bias", 0)}


def gap_fc_backward_data(r, p, s):
    _, h, w, _ = s["dx"]
    return {"dx": np.broadcast_to((_rows(r["dy"]) @ r["w"])[:, None, None] / (h * w), s["dx"])}


# -- convolution ----------------------------------------------------------------------------------


def _patches(x: Array, kernel: int, stride: int, pad: int, fill: float = 0.0) -> Array:
    """(N, P, Q, R, S, C) windows of a map."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))
    return windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


def _scatter(patches: Array, shape: tuple[int, ...], stride: int, pad: int) -> Array:
    """Adjoint of :func:`_patches`."""
    n, h, w, c = shape
    out = np.zeros((n, h + 2 * pad, w + 2 * pad, c))
    for p, q, i, j in np.ndindex(patches.shape[1:5]):
        out[:, p * stride + i, q * stride + j] += patches[:, p, q, i, j]
    return out[:, pad : pad + h, pad : pad + w]


def _split(x: Array, groups: int) -> Array:
    return x.reshape(*x.shape[:-1], groups, -1)


def _groups(op: str, w: Array, p: Mapping[str, Any]) -> int:
    return len(w) if op.startswith("depthwise") else p.get("groups", 1)


def _conv(op: str):
    """Forward, data gradient and weight gradient of a convolution family."""

    def forward(r, p, s):
        w, groups = r["w"], _groups(op, r["w"], p)
        patches = _split(_patches(r["x"], w.shape[1], p["stride"], p["pad"]), groups)
        filters = w.reshape(groups, -1, *w.shape[1:])
        y = np.einsum("npqijgc,gkijc->npqgk", patches, filters)
        return {"y": y.reshape(*y.shape[:3], -1)}

    def backward_data(r, p, s):
        w, groups = r["w"], _groups(op, r["w"], p)
        filters = w.reshape(groups, -1, *w.shape[1:])
        patches = np.einsum("npqgk,gkijc->npqijgc", _split(r["dy"], groups), filters)
        patches = patches.reshape(*patches.shape[:5], -1)
        return {"dx": _scatter(patches, s["dx"], p["stride"], p["pad"])}

    def backward_weight(r, p, s):
        kernel, groups = s["dw"][1], _groups(op, np.empty(s["dw"][0]), p)
        patches = _split(_patches(r["x"], kernel, p["stride"], p["pad"]), groups)
        dw = np.einsum("npqijgc,npqgk->gkijc", patches, _split(r["dy"], groups))
        return {"dw": dw.reshape(s["dw"])}

    def statistics_forward(r, p, s):
        y = forward(r, p, s)["y"]
        return {"y": y, **_batch_statistics(y, r, p)}

    def affine_forward(r, p, s):
        z = forward(r, p, s)["y"] * r["scale"] + r["bias"] + r.get("shortcut", 0)
        return {"y": ACT[p.get("activation")](z)}

    return {
        f"{op}_forward": forward,
        f"{op}_backward_data": backward_data,
        f"{op}_backward_weight": backward_weight,
        f"{op}_statistics_forward": statistics_forward,
        f"{op}_affine_forward": affine_forward,
    }


# -- batch norm -----------------------------------------------------------------------------------


def _batch_statistics(x: Array, r, p) -> dict[str, Array]:
    axes, m = (0, 1, 2), p["momentum"]
    mean, var = x.mean(axes), x.var(axes)
    count = x.size // x.shape[-1]
    unbiased = var * count / max(count - 1, 1)
    return {
        "mean": mean,
        "inverse_std": 1 / np.sqrt(var + p["eps"]),
        "next_mean": (1 - m) * r["prev_mean"] + m * mean,
        "next_var": (1 - m) * r["prev_var"] + m * unbiased,
    }


def _normalise(r, prefix: str = "", x: str = "x") -> Array:
    mean, inverse_std, gamma, beta = (
        r[f"{prefix}{n}"] for n in ("mean", "inverse_std", "gamma", "beta")
    )
    return (r[x] - mean) * inverse_std * gamma + beta


def batch_norm_forward(r, p, s):
    found = _batch_statistics(r["x"], r, p)
    return {**found, "y": ACT[p.get("activation")](_normalise({**r, **found}))}


def batch_norm_apply(r, p, s):
    return {"y": ACT[p.get("activation")](_normalise(r))}


def _norm_gradients(x: Array, dz: Array, gamma: Array, mean: Array, inverse_std: Array):
    hat = (x - mean) * inverse_std
    axes = (0, 1, 2)
    dbeta, dgamma = dz.sum(axes), (dz * hat).sum(axes)
    count = x.size // x.shape[-1]
    dx = gamma * inverse_std * (dz - (dbeta + hat * dgamma) / count)
    return dx, dgamma, dbeta


def _backward_of_norm(r, dz: Array, prefix: str = "", x: str = "x"):
    names = (f"{prefix}{n}" for n in ("gamma", "mean", "inverse_std"))
    return _norm_gradients(r[x], dz, *(r[n] for n in names))


def batch_norm_backward(r, p, s):
    dz = (r["dy"] + r.get("addend", 0)) * _slope_at(_normalise(r), p.get("activation"))
    dx, dgamma, dbeta = _backward_of_norm(r, dz)
    return {"dx": dx, "dgamma": dgamma, "dbeta": dbeta}


def batch_norm_add_forward(r, p, s):
    waits = "shortcut_mean" in r
    shortcut = _normalise(r, "shortcut_", "shortcut") if waits else r["shortcut"]
    z = _normalise(r) + shortcut
    result = {"z": z, "y": ACT[p.get("activation")](z)}
    if "mask" in s:
        is_open = _slope_at(z, p["activation"]) != 0
        result["mask"] = np.packbits(is_open, axis=-1, bitorder="little")
    return result


def batch_norm_add_backward(r, p, s):
    dz = (r["dy"] + r.get("addend", 0)) * _slope(r, p.get("activation"))
    dx, dgamma, dbeta = _backward_of_norm(r, dz)
    result = {"dx": dx, "dgamma": dgamma, "dbeta": dbeta, "dshortcut": dz}
    if "shortcut_mean" in r:
        names = ("dshortcut", "dshortcut_gamma", "dshortcut_beta")
        gradients = _backward_of_norm(r, dz, "shortcut_", "shortcut")
        result |= dict(zip(names, gradients, strict=True))
    return result


def batch_norm_fold(r, p, s):
    scale = r["gamma"] / np.sqrt(r["var"] + p["eps"])
    return {"scale": scale, "bias": r["beta"] - r["mean"] * scale}


def affine_forward(r, p, s):
    return {"y": ACT[p.get("activation")](r["x"] * r["scale"] + r["bias"])}


# -- pools ----------------------------------------------------------------------------------------


def max_pool_forward(r, p, s):
    patches = _patches(r["x"], p["kernel"], p["stride"], p["pad"], -np.inf)
    flat = patches.reshape(*patches.shape[:3], -1, patches.shape[-1])
    return {"y": flat.max(3), "argmax": flat.argmax(3)}


def max_pool_backward(r, p, s):
    k = p["kernel"]
    hot = np.arange(k * k)[:, None] == r["argmax"][:, :, :, None, :]
    patches = (hot * r["dy"][:, :, :, None, :]).reshape(*r["dy"].shape[:3], k, k, -1)
    return {"dx": _scatter(patches, s["dx"], p["stride"], p["pad"])}


def batch_norm_max_pool_forward(r, p, s):
    return max_pool_forward({"x": ACT[p["activation"]](_normalise(r))}, p, s)


def batch_norm_max_pool_backward(r, p, s):
    if "argmax" not in r:
        r = {**r, "argmax": batch_norm_max_pool_forward(r, p, s)["argmax"]}
    dmap = max_pool_backward(r, p, {"dx": r["x"].shape})["dx"]
    return batch_norm_backward({**r, "dy": dmap}, p, s)


def _covered(shape: tuple[int, ...], p) -> Array:
    """Real pixels under each window."""
    ones = np.ones((1, *shape[1:3], 1))
    return _patches(ones, p["kernel"], p["stride"], p["pad"]).sum((3, 4))


def average_pool_forward(r, p, s):
    total = _patches(r["x"], p["kernel"], p["stride"], p["pad"]).sum((3, 4))
    return {"y": total / _covered(r["x"].shape, p)}


def average_pool_backward(r, p, s):
    share = r["dy"] / _covered(s["dx"], p)
    k = p["kernel"]
    patches = np.broadcast_to(share[:, :, :, None, None], (*share.shape[:3], k, k, share.shape[3]))
    return {"dx": _scatter(patches, s["dx"], p["stride"], p["pad"])}


# -- the rest -------------------------------------------------------------------------------------


def softmax_cross_entropy_forward_backward(r, p, s):
    logits, labels = _rows(r["logits"]), r["labels"].astype(int)
    top = logits.max(1, keepdims=True)
    log_sum = top + np.log(np.exp(logits - top).sum(1, keepdims=True))
    probability = np.exp(logits - log_sum)
    rows = np.arange(len(labels))
    probability[rows, labels] -= 1
    dlogits = probability / len(labels) * r["loss_scale"]
    return {
        "loss": (log_sum[:, 0] - logits[rows, labels]).sum(),
        "dlogits": dlogits.reshape(s["dlogits"]),
        "count": len(labels),
    }


def softmax_cross_entropy_forward(r, p, s):
    logits, labels = _rows(r["logits"]), r["labels"].astype(int)
    top = logits.max(1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(1))
    rows = np.arange(len(labels))
    return {"loss": (log_sum - logits[rows, labels]).sum(), "predicted": logits.argmax(1)}


def dropout_forward(r, p, s):
    generator = np.random.default_rng([int(r["seed"].reshape(-1)[0]), p["layer_index"]])
    mask = generator.random(r["x"].shape) >= p["p"]
    return {"y": r["x"] * mask / (1 - p["p"]), "mask": mask}


def channel_padding_forward(r, p, s):
    missing = s["y"][3] - r["x"].shape[3]
    return {"y": np.pad(r["x"], ((0, 0), (0, 0), (0, 0), (0, missing)))}


MEANING: dict[str, Callable[..., dict[str, Any]]] = {
    **_conv("conv"),
    **_conv("depthwise_conv"),
    **_conv("group_conv"),
    **{
        f.__name__: f
        for f in (
            fc_forward,
            fc_backward_data,
            fc_backward_weight,
            gap_fc_forward,
            gap_fc_backward_data,
            batch_norm_forward,
            batch_norm_apply,
            batch_norm_backward,
            batch_norm_add_forward,
            batch_norm_add_backward,
            batch_norm_max_pool_forward,
            batch_norm_max_pool_backward,
            batch_norm_fold,
            affine_forward,
            max_pool_forward,
            max_pool_backward,
            average_pool_forward,
            average_pool_backward,
            softmax_cross_entropy_forward_backward,
            softmax_cross_entropy_forward,
            dropout_forward,
            channel_padding_forward,
        )
    },
    "activation_forward": lambda r, p, s: {"y": ACT[p["activation"]](r["x"])},
    "activation_backward": lambda r, p, s: {"dx": r["dy"] * _slope(r, p["activation"])},
    "dropout_backward": lambda r, p, s: {"dx": r["dy"] * r["mask"] / (1 - p["p"])},
    "add_forward": lambda r, p, s: {
        "z": r["main"] + r["shortcut"],
        "y": ACT[p.get("activation")](r["main"] + r["shortcut"]),
    },
    "gradient_sum": lambda r, p, s: {"dx": r["a"] + r["b"]},
    "copy": lambda r, p, s: {"y": r["x"]},
    "global_average_pool_forward": lambda r, p, s: {"y": r["x"].mean((1, 2))},
    "global_average_pool_backward": lambda r, p, s: {
        "dx": np.broadcast_to(r["dy"] / (s["dx"][1] * s["dx"][2]), s["dx"])
    },
    "channel_padding_backward": lambda r, p, s: {"dx": r["dy"][..., : s["dx"][3]]},
}
