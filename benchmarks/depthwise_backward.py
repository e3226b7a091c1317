"""Measures the backward of depthwise convolutions and of the norms on their two sides.

    python benchmarks/depthwise_backward.py [--batch N] [--only PATTERN] [--variants] [--json FILE]

For every depthwise layer of MobileNetV2 in fp16, in one run, microseconds as ``memory_kernels.py``
measures them. Apart: the backward of the norm behind, both gradients of the convolution, the
backward of the norm before. Fused: the sums of the norm behind, the one pass, the rest of the norm
before. With ``--variants`` the one pass is measured in several shapes. Correctness is what
``tests/runtime/test_depthwise_backward.py`` checks, on whatever device it runs on.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from depthwise_kernels import LAYERS, Layer, sizes_of
from memory_kernels import HALF, RELU6, WORKSPACE, Case, measured

from renaissance.lowering.calls import targets
from renaissance.lowering.fused.convolutions import depthwise_pieces
from renaissance.lowering.fused.norms import partial_rows
from renaissance.lowering.launches import depthwise_backward as depthwise_backward_launches
from renaissance.lowering.launches.depthwise_backward import BackwardShape, pieces_of
from renaissance.lowering.launches.table import launches_of
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

VARIANTS = [BackwardShape(2, 4, 2), BackwardShape(2, 8, 1), BackwardShape(4, 4, 1)]
"""Shapes that ``--variants`` measures."""
APART = ("behind", "data", "weight", "before")
FUSED = ("sums", "pass", "rest")
_NO_POOL = ("n", "h", "w", "p", "q", "kernel", "stride", "pad", "argmax_bytes")


def norm_case(name: str, rows: int, c: int, part: str, pieces: int) -> Case:
    """The backward of a norm: whole, its ``sums`` alone, or the ``rest`` behind them."""
    m, v = rows * c * 2, 4 * c
    moved = {"sums": 2 * m, "rest": 3 * m}.get(part, 5 * m)
    attributes = {**dict.fromkeys(_NO_POOL, 0), "rows": rows, "c": c, "partial_rows": pieces}
    attributes |= {"type": HALF, "activation": 0 if part == "rest" else RELU6}
    attributes |= {"summed": int(part == "rest")}
    dx = 0 if part == "sums" else m
    sizes = [m, 0, 0, m, *[v] * 4, 0, *[0] * 4, dx, v, v, 0, 0, 0, 2 * pieces * v, 0, 0]
    return Case(name, targets.BATCH_NORM_BACKWARD, sizes, moved, attributes)


def cases_of(layer: Layer, n: int) -> Iterator[Case]:
    """The calls apart, and those of the fused form, cut up as the present shape says."""
    a, c = sizes_of(layer, n), layer.c
    rows_in, rows_out, v = n * a["h"] * a["w"], n * a["p"] * a["q"], 4 * c
    x, y, w = rows_in * c * 2, rows_out * c * 2, 18 * c
    yield norm_case(f"{layer} behind", rows_out, c, "whole", partial_rows(rows_out, c))
    yield Case(f"{layer} data", targets.DEPTHWISE_CONV_BACKWARD_DATA, [y, w, x], x + y, a)
    pieces = depthwise_pieces(a, WORKSPACE)
    weight, sizes = {**a, "partial_rows": pieces}, [x, y, w, 9 * v * pieces]
    yield Case(f"{layer} weight", targets.DEPTHWISE_CONV_BACKWARD_WEIGHT, sizes, x + y, weight)
    yield norm_case(f"{layer} before", rows_in, c, "whole", partial_rows(rows_in, c))
    yield norm_case(f"{layer} sums", rows_out, c, "sums", partial_rows(rows_out, c))
    yield pass_case(layer, n)
    yield norm_case(f"{layer} rest", rows_in, c, "rest", pieces_of(a))


def pass_case(layer: Layer, n: int) -> Case:
    """The one pass."""
    a, c = sizes_of(layer, n), layer.c
    x, y, v = n * a["h"] * a["w"] * c * 2, n * a["p"] * a["q"] * c * 2, 4 * c
    pieces = pieces_of(a)
    both = {**a, "partial_rows": pieces, "y_activation": RELU6, "x_activation": RELU6}
    sizes = [y, y, *[v] * 6, 18 * c, x, *[v] * 4, x, 18 * c, 9 * v * pieces, 2 * v * pieces]
    return Case(f"{layer} pass", targets.DEPTHWISE_CONV_BACKWARD, sizes, 2 * (x + y), both)


@contextmanager
def shaped(shape: BackwardShape | None) -> Iterator[None]:
    """All passes in this shape, while it lasts; None for the chosen ones."""
    chosen = depthwise_backward_launches.shape_of
    if shape is not None:
        depthwise_backward_launches.shape_of = lambda a: shape
    yield
    depthwise_backward_launches.shape_of = chosen


def compile_all(wanted: list[tuple[Case, BackwardShape | None]], plan_launches: Any) -> None:
    """Compile every kernel side by side: the compiler works outside Python's lock."""
    if not isinstance(plan_launches, CudaKernels):
        return
    kernels, begin = set(), time.perf_counter()
    for case, shape in wanted:
        with shaped(shape):
            kernels |= {launch.kernel for launch in launches_of(case.call()[0])}
    with ThreadPoolExecutor() as pool:
        list(pool.map(plan_launches.compiler.compile, kernels))
    print(f"{len(kernels)} kernels compiled in {time.perf_counter() - begin:.1f} s", flush=True)


def table(layers: list[Layer], rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each layer, and one for the network, in microseconds of the best shapes."""
    parts = (*APART, *FUSED)
    yield f"{'layer':16s} x {' '.join(f'{part:>8s}' for part in parts)} {'apart':>8s} {'fused':>8s}"
    totals = dict.fromkeys(parts, 0.0)

    def line(name: str, count: str, us: dict[str, float]) -> str:
        sums = (sum(us[part] for part in group) for group in (APART, FUSED))
        return f"{name:16s} {count:1s} {' '.join(f'{v:8.1f}' for v in (*us.values(), *sums))}"

    for layer in layers:
        best = {p: min(r["us"] for r in rows if r["name"] == f"{layer} {p}") for p in parts}
        totals = {p: totals[p] + layer.count * best[p] for p in parts}
        yield line(str(layer), str(layer.count), best)
    yield line("all", "", totals)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="", help="a regular expression for layers")
    parser.add_argument("--variants", action="store_true", help="the one pass in several shapes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="start no layer after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plan_launches = launches_for(jax.local_devices()[0])
    layers = [layer for layer in LAYERS if re.search(options.only, str(layer))]
    wanted: dict[Layer, list[tuple[Case, BackwardShape | None]]] = {}
    for layer in layers:
        wanted[layer] = [(case, None) for case in cases_of(layer, options.batch)]
        for shape in VARIANTS if options.variants else []:
            with shaped(shape):
                wanted[layer].append((pass_case(layer, options.batch), shape))
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
            with shaped(shape):
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
