"""Measures depthwise convolutions with the norm before and the statistics behind them.

    python benchmarks/depthwise_kernels.py [--batch 256] [--only PATTERN] [--variants] [--json FILE]

For every depthwise layer of MobileNetV2 in fp16: the three calls apart (norm and ReLU6,
convolution, statistics) and fused, all in one run; microseconds as ``memory_kernels.py`` measures
them. ``stored`` leaves the activated map for the backward pass, ``unstored`` does not, ``plain``
has no norm before it. With ``--variants`` the fused kernels are measured in several shapes.
Correctness is what ``tests/lowering/rewrites/test_depthwise.py`` checks, on whatever device it
runs on.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from memory_kernels import HALF, RELU6, Case, measured

from renaissance.lowering.calls import targets
from renaissance.lowering.fused.norms import PARTIAL_ROWS, partial_rows
from renaissance.lowering.launches import depthwise_norm as depthwise_norm_launches
from renaissance.lowering.launches.depthwise_norm import StripShape, cut_of
from renaissance.lowering.launches.table import launches_of
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

NORM_CONSTANTS = {"momentum": 0.1, "eps": 1e-5}
SHAPES = [StripShape(2, 7), StripShape(4, 2), StripShape(4, 3)]
"""Shapes that ``--variants`` measures."""


@dataclass(frozen=True)
class Layer:
    """A depthwise layer: channels, side of its input, stride, and how often the network has it."""

    c: int
    side: int
    stride: int
    count: int

    def __str__(self) -> str:
        return f"{self.c}x{self.side}x{self.side}/{self.stride}"


LAYERS = [
    Layer(32, 112, 1, 1),
    Layer(96, 112, 2, 1),
    Layer(144, 56, 1, 1),
    Layer(144, 56, 2, 1),
    Layer(192, 28, 1, 2),
    Layer(192, 28, 2, 1),
    Layer(384, 14, 1, 4),
    Layer(576, 14, 1, 2),
    Layer(576, 14, 2, 1),
    Layer(960, 7, 1, 3),
]


def sizes_of(layer: Layer, n: int) -> dict[str, Any]:
    """Attributes of its convolution."""
    c, side, out = layer.c, layer.side, (layer.side - 1) // layer.stride + 1
    sizes = {"n": n, "h": side, "w": side, "c": c, "k": c, "p": out, "q": out, "r": 3, "s": 3}
    return {**sizes, "stride": layer.stride, "pad": 1, "groups": c, "type": HALF}


def separate_cases(layer: Layer, n: int) -> Iterator[Case]:
    """The three calls apart."""
    a = sizes_of(layer, n)
    rows_in, rows_out, v = n * a["h"] * a["w"], n * a["p"] * a["q"], 4 * layer.c
    x, y = rows_in * layer.c * 2, rows_out * layer.c * 2
    norm = {"rows": rows_in, "c": layer.c, "type": HALF, "activation": RELU6}
    sizes = [x, *[v] * 4, 0, 0, 0, 0, 0, x, 0, 0]
    yield Case(f"{layer} norm", targets.BATCH_NORM_APPLY, sizes, 2 * x, norm)
    sizes = [x, 18 * layer.c, y]
    yield Case(f"{layer} convolution", targets.DEPTHWISE_CONV_FORWARD, sizes, x + y, a)
    pieces = partial_rows(rows_out, layer.c)
    sums = {"rows": rows_out, "c": layer.c, "type": HALF, "partial_rows": pieces}
    sizes = [y, *[v] * 6, 2 * pieces * v]
    target = targets.BATCH_NORM_STATISTICS
    yield Case(f"{layer} statistics", target, sizes, y, {**sums, **NORM_CONSTANTS})


def fused_case(layer: Layer, n: int, form: str) -> Case:
    """The fused call, cut up as the present shape says."""
    a = sizes_of(layer, n)
    cut, v = cut_of(a, PARTIAL_ROWS), 4 * layer.c
    x, y = n * a["h"] * a["w"] * layer.c * 2, n * a["p"] * a["q"] * layer.c * 2
    norm = [0] * 4 if form == "plain" else [v] * 4
    stored = x if form == "stored" else 0
    sizes = [x, *norm, stored, 18 * layer.c, y, *[v] * 6, 2 * cut.pieces * v]
    activation = {"activation": 0 if form == "plain" else RELU6}
    attributes = {**a, **NORM_CONSTANTS, **cut.attributes, **activation}
    target = targets.DEPTHWISE_NORM_FORWARD
    return Case(f"{layer} {form}", target, sizes, x + stored + y, attributes)


@contextmanager
def strips(shape: StripShape | None) -> Iterator[None]:
    """All fused kernels in this shape, while it lasts; None for the chosen ones."""
    chosen = depthwise_norm_launches.shape_of
    if shape is not None:
        depthwise_norm_launches.shape_of = lambda _: shape
    yield
    depthwise_norm_launches.shape_of = chosen


def compile_all(wanted: list[tuple[Case, StripShape | None]], plan_launches: Any) -> None:
    """Compile every kernel side by side: the compiler works outside Python's lock."""
    if not isinstance(plan_launches, CudaKernels):
        return
    kernels, begin = set(), time.perf_counter()
    for case, shape in wanted:
        with strips(shape):
            kernels |= {launch.kernel for launch in launches_of(case.call()[0])}
    with ThreadPoolExecutor() as pool:
        list(pool.map(plan_launches.compiler.compile, kernels))
    print(f"{len(kernels)} kernels compiled in {time.perf_counter() - begin:.1f} s", flush=True)


def cases_of(layer: Layer, n: int, shapes: list[StripShape | None]) -> Iterator[Any]:
    """Cases of a layer, each with the shape to measure it in."""
    for case in separate_cases(layer, n):
        yield case, None
    for form in ("stored", "unstored", "plain"):
        for shape in shapes[: 1 if form == "plain" else None]:
            with strips(shape):
                yield fused_case(layer, n, form), shape


def table(layers: list[Layer], rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each layer, and one for the network, in microseconds of the best shapes."""
    parts = ("norm", "convolution", "statistics", "stored", "unstored", "plain")
    yield f"{'layer':16s} x {' '.join(f'{part:>11s}' for part in parts)} {'apart':>9s}"
    totals = dict.fromkeys(parts, 0.0)
    for layer in layers:
        best = {p: min(r["us"] for r in rows if r["name"] == f"{layer} {p}") for p in parts}
        totals = {p: totals[p] + layer.count * best[p] for p in parts}
        numbers = " ".join(f"{best[part]:11.1f}" for part in parts)
        yield f"{layer!s:16s} {layer.count} {numbers} {sum(list(best.values())[:3]):9.1f}"
    numbers = " ".join(f"{totals[part]:11.1f}" for part in parts)
    yield f"{'all':16s}   {numbers} {sum(list(totals.values())[:3]):9.1f}"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="", help="a regular expression for layers")
    parser.add_argument("--variants", action="store_true", help="fused kernels in several shapes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="start no layer after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plan_launches = launches_for(jax.local_devices()[0])
    layers = [layer for layer in LAYERS if re.search(options.only, str(layer))]
    shapes: list[StripShape | None] = [*SHAPES] if options.variants else [None]
    wanted = {layer: list(cases_of(layer, options.batch, shapes)) for layer in layers}
    compile_all([pair for pairs in wanted.values() for pair in pairs], plan_launches)
    print(f"{jax.local_devices()[0]}, jax {jax.__version__}, batch {options.batch}, fp16")
    rows: list[dict[str, Any]] = []
    done: list[Layer] = []
    began = time.perf_counter()
    for layer, pairs in wanted.items():
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        for case, shape in pairs:
            with strips(shape):
                time_us, same = measured(case, plan_launches, options.repeats)
            rate = case.moved / time_us / 1e3
            label = f"  {shape}" if shape else ""
            bits = "" if same else "  DIFFERENT BITS"
            print(f"{case.name:28s} {time_us:8.1f} us {rate:7.0f} GB/s{bits}{label}", flush=True)
            row = {"name": case.name, "us": time_us, "bytes": case.moved, "same_bits": same}
            rows.append({**row, "shape": str(shape)})
        done.append(layer)
    print("\n".join(table(done, rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
