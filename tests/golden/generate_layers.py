"""Golden numbers of every layer and the loss, from PyTorch on the CPU in fp64.

Run once, in an environment with ``torch`` and ``numpy``, from the root of the repository::

    PYTHONPATH=. python tests/golden/generate_layers.py

Inputs are drawn by name with :func:`renaissance.testing.golden.golden_normal`, so only results are
stored, rounded to fp32. Maps are NHWC and filters KRSC in the file; PyTorch computes in NCHW.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from renaissance.testing.golden import golden_normal, write_golden

HERE = Path(__file__).parent
Options = dict[str, Any]
Results = dict[str, np.ndarray]


def draw(case: str, tensor: str, shape: Any) -> Tensor:
    return torch.from_numpy(golden_normal(f"{case}/{tensor}", tuple(shape)))


def nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def rounded(results: dict[str, Tensor]) -> Results:
    return {name: value.detach().numpy().astype(np.float32) for name, value in results.items()}


def with_gradients(case: str, function: Callable[..., Tensor], **inputs: Tensor) -> Results:
    """The result ``y`` and the gradient of every input for a drawn ``dy``."""
    for value in inputs.values():
        value.requires_grad_()
    y = function(**inputs)
    y.backward(draw(case, "dy", y.shape))
    return rounded({"y": y, **{f"d{name}": value.grad for name, value in inputs.items()}})


# --- one function per layer: options in, results out ---------------------------------------------


def conv(case: str, options: Options) -> Results:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        y = F.conv2d(
            nchw(x),
            nchw(w),
            stride=options["stride"],
            padding=options["pad"],
            groups=options["groups"],
        )
        return nhwc(y)

    x, w = draw(case, "x", options["x"]), draw(case, "w", options["w"])
    return with_gradients(case, layer, x=x, w=w)


def max_pool(case: str, options: Options) -> Results:
    def layer(x: Tensor) -> Tensor:
        return nhwc(F.max_pool2d(nchw(x), options["kernel"], options["stride"], options["pad"]))

    x = draw(case, "x", options["x"])
    # A coarse grid of values makes ties in most windows.
    return with_gradients(case, layer, x=torch.round(x) if options["ties"] else x)


def average_pool(case: str, options: Options) -> Results:
    def layer(x: Tensor) -> Tensor:
        window = options["kernel"], options["stride"], options["pad"]
        return nhwc(F.avg_pool2d(nchw(x), *window, count_include_pad=False))

    return with_gradients(case, layer, x=draw(case, "x", options["x"]))


def global_average_pool(case: str, options: Options) -> Results:
    def layer(x: Tensor) -> Tensor:
        return nhwc(F.adaptive_avg_pool2d(nchw(x), 1))

    return with_gradients(case, layer, x=draw(case, "x", options["x"]))


def activation(case: str, options: Options) -> Results:
    function = {
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
        "silu": F.silu,
        "hardswish": F.hardswish,
        "elu": F.elu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }[options["function"]]
    x = 4 * draw(case, "x", options["x"])
    # The kinks and the far ends themselves.
    x.view(-1)[:8] = torch.tensor([0.0, 3.0, -3.0, 6.0, -6.0, 80.0, -80.0, 1e-6])
    return with_gradients(case, lambda x: function(x), x=x)


def batch_norm(case: str, options: Options) -> Results:
    """Training: y, gradients and running statistics; then inference with the new statistics."""
    shape = options["x"]
    x = options["spread"] * draw(case, "x", shape) + options["offset"]
    gamma, beta = 1 + 0.5 * draw(case, "w", shape[-1:]), draw(case, "b", shape[-1:])
    mean, var = draw(case, "mean", shape[-1:]), 0.5 + draw(case, "var", shape[-1:]).abs()
    settings = {"momentum": options["momentum"], "eps": options["eps"]}

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return nhwc(F.batch_norm(nchw(x), mean, var, w, b, training=True, **settings))

    results = with_gradients(case, layer, x=x, w=gamma, b=beta)
    with torch.no_grad():
        infer = nhwc(F.batch_norm(nchw(x), mean, var, gamma, beta, training=False, **settings))
    return results | rounded({"mean": mean, "var": var, "infer": infer})


def fc(case: str, options: Options) -> Results:
    rows, features, out = options["rows"], options["in"], options["out"]
    inputs = {"x": draw(case, "x", (rows, features)), "w": draw(case, "w", (out, features))}
    if options["bias"]:
        inputs["b"] = draw(case, "b", (out,))
    return with_gradients(case, lambda x, w, b=None: F.linear(x, w, b), **inputs)


def flatten(case: str, options: Options) -> Results:
    return with_gradients(
        case, lambda x: x.flatten(options["start_dim"]), x=draw(case, "x", options["x"])
    )


def cross_entropy(case: str, options: Options) -> Results:
    rows, classes, smoothing = options["rows"], options["classes"], options["label_smoothing"]
    labels = torch.tensor(options["labels"])

    def layer(x: Tensor) -> Tensor:
        return F.cross_entropy(x, labels, label_smoothing=smoothing)

    x = options["spread"] * draw(case, "x", (rows, classes))
    return with_gradients(case, layer, x=x)


LAYERS = {
    function.__name__: function
    for function in (
        conv,
        max_pool,
        average_pool,
        global_average_pool,
        activation,
        batch_norm,
        fc,
        flatten,
        cross_entropy,
    )
}


# --- the sweeps ----------------------------------------------------------------------------------


def conv_case(x: Any, out: int, kernel: Any, stride: Any, pad: Any, groups: int = 1) -> Options:
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    w = (out, *kernel, x[3] // groups)
    return {"layer": "conv", "x": x, "w": w, "stride": stride, "pad": pad, "groups": groups}


def conv_cases() -> dict[str, Options]:
    cases = {}
    for kernel in (1, 2, 3, 5, 7):
        for stride in (1, 2, 3):
            for pad in {0, kernel // 2}:
                name = f"conv k{kernel} s{stride} p{pad}"
                cases[name] = conv_case((2, 9, 8, 3), 5, kernel, stride, pad)
    cases |= {
        "conv one pixel": conv_case((3, 1, 1, 13), 11, 1, 1, 0),
        "conv one pixel padded": conv_case((1, 1, 1, 4), 3, 3, 1, 1),
        "conv one image": conv_case((1, 6, 11, 9), 8, 3, 2, 1),
        "conv one channel": conv_case((2, 7, 7, 1), 1, 3, 1, 1),
        "conv stride above kernel": conv_case((2, 10, 9, 3), 4, 2, 4, 0),
        "conv pad above kernel": conv_case((1, 4, 5, 2), 3, 1, 1, 2),
        "conv whole map": conv_case((2, 5, 4, 3), 6, (5, 4), 1, 0),
        "conv oblong": conv_case((2, 9, 10, 3), 4, (3, 1), (2, 1), (1, 0)),
        "conv grouped": conv_case((2, 7, 6, 12), 9, 3, 1, 1, 3),
        "conv grouped strided": conv_case((2, 7, 6, 6), 4, 3, 2, 1, 2),
        "conv depthwise": conv_case((2, 8, 7, 13), 13, 3, 1, 1, 13),
        "conv depthwise strided": conv_case((2, 8, 7, 5), 5, 3, 2, 1, 5),
        "conv depthwise one image": conv_case((1, 5, 5, 8), 8, 5, 1, 2, 8),
        "conv depthwise multiplied": conv_case((1, 5, 6, 3), 6, 3, 1, 1, 3),
    }
    return cases


def pool_cases() -> dict[str, Options]:
    cases: dict[str, Options] = {}
    windows = ((2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0), (2, 1, 1), (5, 2, 2), (2, 3, 0))
    for kernel, stride, pad in windows:
        for x in ((2, 8, 9, 5), (1, 7, 5, 3)):
            base = {"x": x, "kernel": kernel, "stride": stride, "pad": pad}
            name = f"k{kernel} s{stride} p{pad} on {x[1]}x{x[2]}"
            cases[f"average pool {name}"] = {"layer": "average_pool", **base}
            for ties in (False, True):
                kind = "ties" if ties else "plain"
                cases[f"max pool {name} {kind}"] = {"layer": "max_pool", **base, "ties": ties}
    for x in ((2, 7, 5, 13), (1, 1, 1, 4), (3, 2, 8, 1)):
        cases[f"gap {'x'.join(map(str, x))}"] = {"layer": "global_average_pool", "x": x}
    return cases


def norm_cases() -> dict[str, Options]:
    def case(x: Any, **changes: Any) -> Options:
        base = {"momentum": 0.1, "eps": 1e-5, "spread": 1.0, "offset": 0.0}
        return {"layer": "batch_norm", "x": x, **base, **changes}

    return {
        "bn map": case((3, 5, 4, 7)),
        "bn one image": case((1, 4, 3, 8)),
        "bn vectors": case((9, 13)),
        "bn two vectors": case((2, 3)),
        "bn one pixel": case((6, 1, 1, 5)),
        "bn momentum": case((2, 3, 3, 4), momentum=0.9),
        "bn large eps": case((2, 3, 3, 4), eps=1e-1),
        "bn tiny spread": case((2, 4, 4, 3), spread=1e-3),
        "bn off centre": case((4, 4, 4, 3), offset=16.0),
    }


def other_cases() -> dict[str, Options]:
    functions = ("relu", "relu6", "leaky_relu", "silu", "hardswish", "elu", "sigmoid", "tanh")
    cases: dict[str, Options] = {
        f"activation {name}": {"layer": "activation", "function": name, "x": (2, 4, 5, 3)}
        for name in functions
    }
    for rows, features, out in ((4, 7, 5), (1, 13, 3), (3, 1, 1), (5, 16, 10)):
        for bias in (True, False):
            name = f"fc {rows}x{features} to {out} {'bias' if bias else 'plain'}"
            cases[name] = {"layer": "fc", "rows": rows, "in": features, "out": out, "bias": bias}
    for start_dim in (1, 2, 3):
        name = f"flatten from {start_dim}"
        cases[name] = {"layer": "flatten", "x": (2, 3, 4, 5), "start_dim": start_dim}
    for smoothing in (0.0, 0.1, 0.5):
        for rows, classes in ((5, 7), (1, 10), (4, 2)):
            for spread in (1.0, 30.0):
                name = f"loss {rows}x{classes} smoothing {smoothing} spread {spread:g}"
                cases[name] = {
                    "layer": "cross_entropy",
                    "rows": rows,
                    "classes": classes,
                    "label_smoothing": smoothing,
                    "spread": spread,
                    "labels": [(3 * row + 1) % classes for row in range(rows)],
                }
    return cases


def main() -> None:
    files = {
        "conv": conv_cases(),
        "pool": pool_cases(),
        "norm": norm_cases(),
        "other_layers": other_cases(),
    }
    for name, cases in files.items():
        path = HERE / f"{name}.npz"
        results = {
            case: (options, LAYERS[options["layer"]](case, options))
            for case, options in cases.items()
        }
        write_golden(path, results)
        print(f"{path.name}: {len(results)} cases, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
