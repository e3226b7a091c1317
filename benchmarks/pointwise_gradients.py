"""Measures both gradients of pointwise convolutions behind a norm, joined and apart.

    python benchmarks/pointwise_gradients.py [--only PATTERN] [--seconds 120] [--rule] [--json FILE]

Apart, the library's gradient of the filters and ``rn_pointwise_backward_data``; joined,
``rn_pointwise_backward``, cut up by the rule and in the shapes of VARIANTS. Both run in place on
random halves in an executable of many calls; what starting it takes is not in the numbers. Results
are compared tensor by tensor, relative to the norm; GB/s are of the least bytes of the joined call.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from pointwise_backward import COUNT, MIB, copy, microseconds, random_halves

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand, thread
from renaissance.lowering.launches import pointwise_gradients as plans
from renaissance.lowering.launches.pointwise_backward import (
    PointwiseShape,
    planned_shape,
    row_blocks,
)
from renaissance.lowering.launches.pointwise_gradients import GradientsShape
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.program.fused import launches_for

WORKSPACE = 32 * MIB
NO_POOL = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad"), 0)
NO_POOL["argmax_bytes"] = 0

SIZES = [
    # rows, channels of dy, channels of x, activation, whether dx is wanted, calls in a step
    (802816, 256, 64, 1, True, 3),
    (3211264, 96, 16, 0, True, 1),
    (3211264, 16, 32, 2, False, 1),
    (802816, 24, 96, 2, False, 1),
    (802816, 24, 144, 2, False, 1),
    (200704, 32, 144, 2, False, 1),
    (200704, 32, 192, 2, False, 2),
    (50176, 64, 192, 2, False, 1),
    (50176, 64, 384, 2, False, 3),
    (50176, 96, 384, 2, False, 1),
    (50176, 96, 576, 2, False, 2),
]
"""Those of ResNet-50 and MobileNetV2 at batch 256."""

VARIANTS: Mapping[tuple[int, int], str] = {
    (256, 64): "64x64,k64,s8,w4x1,b2,g,t4 64x64,k64,s7,w4x1,b2,g,x2",
    (96, 16): "128x16,k96,s3,w4x1,b2,x2 192x16,k48,s3,w4x1,b2,x2 128x16,k48,s4,w4x1,b3",
    (16, 32): "128x32,k16,s3,w4x1,b3,x2 128x32,k16,s4,w4x1,b3,x2 64x32,k16,s4,w4x1,b4,x3",
    (24, 96): "64x96,k32,s3,w2x3,b2,x2 128x96,k32,s3,w2x3,b2,x1 64x96,k32,s3,w2x3,b2,x3",
    (24, 144): "48x144,k32,s3,w3x3,b2,d9x1,x2 64x144,k32,s3,w2x3,b2,d3x2,x2 "
    "96x144,k32,s2,w3x3,b1,x2 64x48,k32,s4,w4x1,b4,x3 128x48,k32,s3,w2x3,b2,x2",
    (32, 144): "48x144,k32,s3,w3x3,b2,d9x1,x2 64x144,k32,s3,w2x3,b2,d3x2,x2 "
    "128x48,k32,s3,w2x3,b2,x2 64x48,k32,s3,w4x1,b3,x2",
    (32, 192): "64x64,k64,s4,w4x1,b3,g,x2 64x96,k32,s3,w2x3,b2,x2 64x64,k64,s2,w4x1,b4,g "
    "128x64,k64,s2,w4x1,b2,g",
    (64, 192): "128x64,k64,s2,w4x1,b2,g 64x64,k64,s3,w4x1,b2,g,x2 64x64,k64,s2,w4x1,b4,g",
    (64, 384): "128x64,k64,s2,w4x1,b2,g 64x64,k64,s3,w4x1,b2,g,x2 64x64,k64,s4,w4x1,b3,g,x2",
    (96, 384): "64x64,k64,s4,w4x1,b3,g,x2 64x64,k64,s4,w4x1,b3,g,t2 128x64,k64,s3,w4x1,b2,g",
    (96, 576): "64x64,k64,s4,w4x1,b3,g,x2 64x64,k64,s4,w4x1,b3,g,t2 128x64,k64,s3,w4x1,b2,g",
}
"""Shapes to try, by channels of dy and of x."""


class Case:
    """Both gradients of a convolution on a bank of their own.

    Attributes:
        name: Sizes.
        apart: The calls for the filters and for the input.
        nbytes: Size of the bank.
        results: What both leave behind.
    """

    def __init__(self, rows: int, k: int, c: int, activation: int, dx: bool):
        kind = ("plain", "relu", "relu6")[activation]
        self.name = f"{rows} {k}->{c} {kind}{'' if dx else ', sums alone'}"
        self.nbytes = 0
        dy, x, a, product = (self._place(rows * n * 2) for n in (k, c, c, c))
        self._dx = self._place(rows * c * 2) if dx else None
        w, dw, workspace = (self._place(n) for n in (k * c * 2, k * c * 2, WORKSPACE))
        vectors = [self._place(4 * c) for _ in range(6)]
        partial = self._place(528 * 8 * c)
        norm = (product, None, None, x, *vectors[:4], *[None] * 5, self._dx, *vectors[4:])
        operands: tuple[Operand, ...] = (dy, w, *norm, *[None] * 3, partial, None, None)
        sizes: dict[str, Any] = {**NO_POOL, "rows": rows, "c": c, "k": k, "type": 1}
        sizes |= {"activation": activation, "partial_rows": 1}
        data = InPlaceCall(targets.POINTWISE_BACKWARD_DATA, operands, sizes, "data")
        shape = planned_shape(data)
        assert shape is not None
        sizes["partial_rows"] = row_blocks(sizes, shape)
        data = replace(data, attributes=sizes)
        window = {"n": 1, "h": rows // 64, "w": 64, "p": rows // 64, "q": 64, "r": 1, "s": 1}
        window |= {"c": c, "k": k, "stride": 1, "pad": 0, "groups": 1, "type": 1}
        window["workspace_bytes"] = WORKSPACE
        made = (a, dy, dw, workspace)
        weight = InPlaceCall(targets.CONV_BACKWARD_WEIGHT, made, window, "weight")
        apply = (x, *vectors[:4], *[None] * 5, a, None, None)
        sizes = {"rows": rows, "c": c, "type": 1, "activation": activation}
        self.before = InPlaceCall(targets.BATCH_NORM_APPLY, apply, sizes, "activated")
        self.apart = [weight, data]
        self._both = (dw, workspace)
        self.results = [("dz", product), ("dw", dw), ("dgamma", vectors[4]), ("dbeta", vectors[5])]

    def _place(self, nbytes: int) -> Location:
        at, self.nbytes = self.nbytes, self.nbytes + -(-nbytes // 1024) * 1024
        return Location(Bank.SCRATCH, at, nbytes, "operand")

    def joined(self) -> InPlaceCall:
        """The one call, cut up as is chosen now."""
        data = self.apart[1]
        call = replace(
            data, target=targets.POINTWISE_BACKWARD, operands=(*data.operands, *self._both)
        )
        rows = plans.partial_rows(call)
        return replace(call, attributes={**call.attributes, "partial_rows": rows, "width": 1})


def shape_of(text: str, k: int) -> GradientsShape | None:
    """The shape that :func:`described` describes; the first way to lay warps where that is left
    out, None where there is none."""
    found = re.fullmatch(
        r"(\d+)x(\d+),k(\d+),s(\d+),w(\d+)x(\d+),b(\d+)(,g)?(?:,d(\d+)x(\d+))?(?:,t(\d+))?"
        r"(?:,x(\d+))?",
        text,
    )
    if found is None:
        raise ValueError(f"shape is {text!r}, expected like 64x128,k64,s2,w4x2,b2")
    *numbers, groups, m, n, batch, x_stages = found.groups()
    tile = PointwiseShape(*map(int, numbers), groups=groups is not None)
    laid = [GradientsShape(tile, 2, 2)] if groups else plans.laid(tile, k)
    if m is not None:
        laid = [GradientsShape(tile, int(m), int(n))]
    more = {"batch": int(batch or 1), "x_stages": int(x_stages or 1)}
    return next((replace(shape, **more) for shape in laid), None)


def described(shape: GradientsShape) -> str:
    """A shape in a few letters."""
    t = shape.tile
    laid = ",g" if t.groups else f",d{shape.weight_m}x{shape.weight_n}"
    warps = f"{t.warps_m}x{t.warps_n}"
    tile = f"{t.rows}x{t.columns},k{t.depth},s{t.stages},w{warps},b{t.blocks}"
    return f"{tile}{laid},t{shape.batch},x{shape.x_stages}"


def bank_of(case: Case, plan_launches: Any) -> jax.Array:
    """Random bytes, no two megabytes alike, and the activated map made of them."""
    blocks = [random_halves(jnp.uint32(i)) for i in range(7)]
    block = jnp.concatenate(blocks)[: 7 * MIB - 3 * 256]
    bank = jnp.tile(block, -(-case.nbytes // block.size))[: case.nbytes]
    for place, value in zip(case.apart[1].operands[6:10], (1.0, 0.1, 0.2, 1.0), strict=True):
        assert isinstance(place, Location)
        size = place.nbytes // 4
        values = value + 0.05 * jax.random.normal(jax.random.key(size), (size,), jnp.float32)
        raw = jax.lax.bitcast_convert_type(values, jnp.uint8).reshape(-1)
        bank = jax.lax.dynamic_update_slice(bank, raw, (place.offset,))
    run = jax.jit(lambda b: thread([case.before], {Bank.SCRATCH: b}, {}, plan_launches)[0])
    return run(bank)[Bank.SCRATCH]


def differences(case: Case, bank: jax.Array, plan_launches: Any) -> dict[str, float]:
    """The relative difference of each result; NaN of all where bits differ from run to run."""

    def after(calls: Sequence[InPlaceCall]) -> list[jax.Array]:
        def results(b: jax.Array) -> list[jax.Array]:
            whole = thread(calls, {Bank.SCRATCH: b}, {}, plan_launches)[0][Bank.SCRATCH]
            return [whole[p.offset : p.offset + p.nbytes] for _, p in case.results]

        return jax.jit(results)(bank)

    ours, again, theirs = after([case.joined()]), after([case.joined()]), after(case.apart)
    if not all(jnp.array_equal(a, b) for a, b in zip(ours, again, strict=True)):
        return {name: float("nan") for name, _ in case.results}
    found = {}
    for (name, _), a, b in zip(case.results, ours, theirs, strict=True):
        dtype = jnp.float16 if name in ("dz", "dw") else jnp.float32
        x, y = (
            jax.lax.bitcast_convert_type(v.reshape(-1, jnp.dtype(dtype).itemsize), dtype)
            for v in (a, b)
        )
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        found[name] = float(jnp.linalg.norm(x - y) / jnp.linalg.norm(y))
    return found


def shapes_of(case: Case, rule: bool) -> list[GradientsShape | None]:
    """The shape by rule (None), and the variants that fit."""
    a = case.apart[1].attributes
    some = [] if rule else VARIANTS.get((a["k"], a["c"]), "").split()
    wanted: list[GradientsShape | None] = [None] if plans.shape_of(a) is not None else []
    tried = (shape_of(text, a["k"]) for text in some)
    return wanted + [s for s in tried if s is not None and plans.fits(s, a["k"])]


def choose(case: Case, shape: GradientsShape | None) -> None:
    """Choose a shape for the channels of a case, or leave the choice to the rule."""
    a = case.apart[1].attributes
    plans.MEASURED.clear()
    plans.MEASURED.update(BY_RULE)
    if shape is not None:
        plans.MEASURED[a["k"], a["c"]] = shape


BY_RULE = dict(plans.MEASURED)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--rule", action="store_true", help="no variants")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0, help="start no case after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    chosen = [(Case(*sizes), times) for *sizes, times in SIZES]
    chosen = [(case, times) for case, times in chosen if re.search(options.only, case.name)]
    plan_launches: Any = launches_for(jax.local_devices()[0])
    if hasattr(plan_launches, "compiler"):
        plan_launches.prepare(c for case, _ in chosen for c in (*case.apart, case.before))
        kernels = set()
        for case, _ in chosen:
            for shape in shapes_of(case, options.rule):
                choose(case, shape)
                kernels |= {launch.kernel for launch in launches_of(case.joined())}
        with ThreadPoolExecutor() as pool:
            list(pool.map(plan_launches.compiler.compile, kernels))
    print(f"prepared after {time.perf_counter() - began:.1f} s", flush=True)
    start, rate = copy(plan_launches, 256, options.repeats)
    print(f"copy {rate:.0f} GB/s, start {start:.0f} us", flush=True)
    rows: list[dict[str, Any]] = []
    for case, times in chosen:
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        bank = bank_of(case, plan_launches)

        def timed(calls: list[InPlaceCall], bank: jax.Array = bank) -> float:
            few, many = (
                microseconds(calls, bank.copy(), plan_launches, options.repeats, count)
                for count in (COUNT // 4, 2 * COUNT)
            )
            return (many - few) / (2 * COUNT - COUNT // 4)

        weight, data = (timed([call]) for call in case.apart)
        for shape in shapes_of(case, options.rule):
            choose(case, shape)
            call, used = case.joined(), plans.shape_of(case.apart[1].attributes)
            assert used is not None
            try:
                errors = differences(case, bank, plan_launches)
                us = timed([call])
            except Exception as problem:
                print(f"{case.name} {described(used)}: {str(problem)[:300]}", flush=True)
                continue
            wrong = "" if max(errors.values()) < 2e-3 else "  WRONG"
            gbps = work_of(call).nbytes / us / 1e3
            print(
                f"{case.name:34s} x{times} dw {weight:6.1f} + dx {data:6.1f} us, "
                f"joined {us:6.1f} us, gain {weight + data - us:6.1f} {gbps:5.0f} GB/s "
                f"{gbps / rate:6.1%} {described(used)}{' (rule)' * (shape is None)} "
                + " ".join(f"{name} {error:.0e}" for name, error in errors.items()) + wrong,
                flush=True,
            )  # fmt: skip
            rows.append({"name": case.name, "weight": weight, "data": data, "us": us})
            rows[-1] |= {"shape": described(used), "rule": shape is None, "errors": errors}
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
