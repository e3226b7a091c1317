"""Measures the gradient of pointwise convolutions' inputs with the norm behind it, fused and apart.

    python benchmarks/pointwise_backward.py [--net NET ...] [--batch 256] [--only PATTERN] [--bits]
                                            [--shapes SHAPE ...] [--seconds 90] [--json FILE]

The pairs are those of a network's train step, each distinct shape once: apart, the library's
convolution and all passes of the norm; fused, ``rn_pointwise_backward_data``. Both run in place on
random halves, in an executable of many calls; what starting it takes, measured once with copies, is
not in the numbers. Results are compared, tensor by tensor, relative to the norm.
GB/s are of the least bytes of the fused call (``renaissance/lowering/launches/work.py``), and
percent of a copy of the same run. With ``--bits`` masks of bits stand for gates. ``--shapes`` are
tried beside the one by rule, where they fit: rows x columns, depth, stages, warps, blocks of a
multiprocessor.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches import pointwise_backward as plans
from renaissance.lowering.launches.pointwise_backward import (
    ADDEND,
    GATE,
    MASK,
    NORM,
    PointwiseShape,
    mask_of,
    planned_shape,
    row_blocks,
    shortcut_of,
)
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.lowering.rewrites import simplify
from renaissance.lowering.rewrites.pointwise_backward import Pair, is_faster, pairs
from renaissance.models import by_name
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

COUNT = 16
"""Calls in an executable."""
MIB = 1 << 20
Array = jax.Array
Calls = list[InPlaceCall]


class Case:
    """A pair on a bank of its own.

    Attributes:
        name: Sizes and what there is.
        apart: The convolution's and the norm's call.
        nbytes: Size of the bank.
    """

    def __init__(self, calls: Sequence[InPlaceCall], pair: Pair, bits: bool):
        apart, fused = [calls[pair.convolution], calls[pair.norm]], pair.fused
        if bits and mask_of(fused) == 1:
            apart[1], fused = (
                with_bits(apart[1], 0),
                with_bits(fused, NORM),
            )
        a = fused.attributes
        words = [("", "gate", "bits")[mask_of(fused)], "addend" if fused.operands[ADDEND] else ""]
        words.append(("", "shortcut", "two norms")[shortcut_of(fused)])
        kind = ("plain", "relu", "relu6")[a["activation"]]
        name = f"{a['rows']} {a['k']}->{a['c']} {kind} {' '.join(words)}"
        self.name = " ".join(name.split())
        places: dict[tuple[Any, ...], Location] = {}
        self.nbytes = 0

        def moved(operand: Operand) -> Operand:
            if not isinstance(operand, Location):
                return operand
            key = (operand.bank, operand.offset, operand.nbytes)
            if key not in places:
                places[key] = replace(operand, bank=Bank.SCRATCH, offset=self.nbytes)
                self.nbytes += -(-operand.nbytes // 256) * 256
            return places[key]

        if pair.freed is not None:  # the same numbers for both
            other, product = pair.freed
            back = tuple(other if o == product else o for o in fused.operands)
            fused = replace(fused, operands=back)
        self.apart, (self._fused,) = (
            [replace(c, operands=tuple(moved(o) for o in c.operands)) for c in some]
            for some in (apart, [fused])
        )

    def fused(self) -> InPlaceCall:
        """The one call, its partial sums for the shape that is chosen now."""
        a, shape = self._fused.attributes, planned_shape(self._fused)
        assert shape is not None
        return replace(self._fused, attributes={**a, "partial_rows": row_blocks(a, shape)})

    def results(self) -> list[Location]:
        """What both leave behind: gradients of maps and of constants."""
        wanted = self.apart[1].operands[13:19]
        return [place for place in wanted if isinstance(place, Location)]


def with_bits(call: InPlaceCall, norm: int) -> InPlaceCall:
    """The call with bits where it had a gate; at ``norm`` begin the norm's operands."""
    operands = list(call.operands)
    gate, mask = (
        norm + GATE - NORM,
        norm + MASK - NORM,
    )
    place = operands[gate]
    assert isinstance(place, Location)
    operands[gate], operands[mask] = None, replace(place, nbytes=place.nbytes // 16)
    return replace(call, operands=tuple(operands))


def cases(net: str, batch: int, bits: bool) -> Counter[str]:
    """Distinct pairs of a network's train step by name, each with how often it runs."""
    program = rn.compile(
        by_name(net), (224, 224, 3), batch, num_classes=1000, amp=True, lowering="xla"
    )
    fuse, simplify.fuse_pointwise_backward = simplify.fuse_pointwise_backward, list
    calls = train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls
    simplify.fuse_pointwise_backward = fuse
    found: Counter[str] = Counter()
    for pair in pairs(calls):
        case = Case(calls, pair, bits)
        CASES.setdefault(case.name, case)
        found[case.name] += 1
    return found


CASES: dict[str, Case] = {}


def fitting(case: Case, shapes: Sequence[PointwiseShape]) -> list[PointwiseShape | None]:
    """The shape by rule (None), and those of the others that have room and waste no columns."""
    call = case.fused()
    a, mask = call.attributes, mask_of(call)
    maps = 1 + bool(call.operands[ADDEND]) + (mask == 1) + (shortcut_of(call) == 2)
    return [
        None,
        *(
            s
            for s in shapes
            if plans.fits(s, a["k"], maps, bits=mask == 2)
            and a["c"] % s.columns == a["k"] % s.depth == 0
        ),
    ]


def shape_of(text: str) -> PointwiseShape:
    """The shape that :func:`described` describes."""
    found = re.fullmatch(r"(\d+)x(\d+),k(\d+),s(\d+),w(\d+)x(\d+),b(\d+)(,g)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"shape is {text!r}, expected like 64x128,k64,s2,w4x2,b2")
    *numbers, groups = found.groups()
    return PointwiseShape(*map(int, numbers), groups=groups is not None)


def microseconds(calls: Calls, bank: Array, plan_launches: Any, repeats: int, count: int) -> float:
    """Time of an executable of so many rounds of calls, started and waited for."""

    def several(bank: Array) -> Array:
        return thread(calls * count, {Bank.SCRATCH: bank}, {}, plan_launches)[0][Bank.SCRATCH]

    run = jax.jit(several, donate_argnums=0)
    bank = jax.block_until_ready(run(bank))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        bank = jax.block_until_ready(run(bank))
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


@jax.jit
def random_halves(seed: Array) -> Array:
    """A megabyte of normal halves as bytes."""
    values = jax.random.normal(jax.random.key(seed), (MIB // 2,), jnp.float16)
    return lax.bitcast_convert_type(values, jnp.uint8).reshape(-1)


def bank_of(case: Case) -> Array:
    """Random bytes; no two megabytes alike."""
    blocks = [random_halves(jnp.uint32(i)) for i in range(7)]
    block = jnp.concatenate(blocks)[: 7 * MIB - 3 * 256]
    return jnp.tile(block, -(-case.nbytes // block.size))[: case.nbytes]


def difference(case: Case, bank: Array, plan_launches: Any) -> float:
    """The largest relative difference between what the two leave behind.

    NaN where the fused call does not leave the same bits twice.
    """

    def after(calls: Calls) -> Array:
        run = jax.jit(lambda b: thread(calls, {Bank.SCRATCH: b}, {}, plan_launches)[0])
        return run(bank)[Bank.SCRATCH]

    ours, again, theirs = after([case.fused()]), after([case.fused()]), after(case.apart)
    if not jnp.array_equal(ours, again):
        return float("nan")
    return max(float(_difference(ours, theirs, place)) for place in case.results())


@partial(jax.jit, static_argnums=2)
def _difference(ours: Array, theirs: Array, place: Location) -> Array:
    size, dtype = (4, jnp.float32) if place.nbytes < 65536 else (2, jnp.float16)
    a, b = (
        lax.bitcast_convert_type(
            lax.slice(whole, (place.offset,), (place.offset + place.nbytes,)).reshape(-1, size),
            dtype,
        ).astype(jnp.float32)
        for whole in (ours, theirs)
    )
    return jnp.linalg.norm(a - b) / jnp.linalg.norm(b)


def described(shape: PointwiseShape) -> str:
    """A shape in a few letters."""
    warps = f"{shape.warps_m}x{shape.warps_n}"
    tile = f"{shape.rows}x{shape.columns},k{shape.depth},s{shape.stages}"
    return f"{tile},w{warps},b{shape.blocks}{',g' * shape.groups}"


def copy(plan_launches: Any, batch: int, repeats: int) -> tuple[float, float]:
    """Time of starting an executable in us, and the rate of a copy in GB/s."""
    size = batch * 56 * 56 * 256 * 2
    places = tuple(Location(Bank.SCRATCH, i * size, size, "copy") for i in range(2))
    call = InPlaceCall(targets.COPY, (*places, None), {"bytes": size}, "copy")
    bank = jnp.zeros(2 * size, jnp.uint8) + jnp.uint8(1)
    few, many = (
        microseconds([call], bank.copy(), plan_launches, repeats, count) for count in (4, COUNT)
    )
    one = (many - few) / (COUNT - 4)
    return few - 4 * one, 2 * size / one / 1e3


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", nargs="+", default=["resnet50", "mobilenet_v2"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--bits", action="store_true", help="masks of bits instead of gates")
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=[], help="to try, too")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90.0, help="start no case after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    counted = {net: cases(net, options.batch, options.bits) for net in options.net}
    chosen = [case for name, case in CASES.items() if re.search(options.only, name)]
    plan_launches = launches_for(jax.local_devices()[0])
    prepare(chosen, plan_launches, options.shapes)
    print(f"prepared after {time.perf_counter() - began:.1f} s", flush=True)
    start, rate = copy(plan_launches, options.batch, options.repeats)
    device = jax.local_devices()[0].device_kind
    print(
        f"{device}, jax {jax.__version__}, copy {rate:.0f} GB/s, start {start:.0f} us", flush=True
    )
    rows: list[dict[str, Any]] = []
    for case in chosen:
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        rows += measured(case, plan_launches, options, (start, rate))
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    for net, times in counted.items():
        mine = [row for row in rows if row["shape"] is None and row["name"] in times]
        gain = sum(times[row["name"]] * max(0.0, row["apart"] - row["us"]) for row in mine)
        by_rule = sum(
            times[row["name"]] * (row["apart"] - row["us"])
            for row in mine
            if is_faster(CASES[row["name"]].fused())
        )
        print(f"{net}: {gain:.0f} us a step if every faster pair is fused, {by_rule:.0f} by rule")


def prepare(chosen: list[Case], plan_launches: Any, shapes: Any) -> None:
    """Compile side by side: the compiler works outside Python's lock."""
    if not isinstance(plan_launches, CudaKernels):
        return
    plan_launches.prepare(call for case in chosen for call in case.apart)
    kernels = set()
    for case in chosen:
        for shape in fitting(case, shapes):
            with_shape(case, shape)
            kernels |= {launch.kernel for launch in launches_of(case.fused())}
            with_shape(case, None)
    with ThreadPoolExecutor() as pool:
        list(pool.map(plan_launches.compiler.compile, kernels))


def with_shape(case: Case, shape: PointwiseShape | None) -> None:
    """Choose a shape for the channels of a case, or leave the choice to the rule."""
    key = (case.fused().attributes["k"], case.fused().attributes["c"])
    if shape is None:
        plans.MEASURED.clear()
        plans.MEASURED.update(BY_RULE)
    else:
        plans.MEASURED[key] = shape


BY_RULE = dict(plans.MEASURED)


def measured(
    case: Case, plan_launches: Any, options: Any, copied: tuple[float, float]
) -> list[dict[str, Any]]:
    """Rows of the table: a case, its kernel in every shape."""
    bank = bank_of(case)
    start, copy_rate = copied

    def timed(calls: Calls) -> float:
        whole = microseconds(calls, bank.copy(), plan_launches, options.repeats, COUNT)
        return (whole - start) / COUNT

    apart = timed(case.apart)
    rows = []
    for shape in fitting(case, options.shapes):
        with_shape(case, shape)
        call = case.fused()
        error = difference(case, bank, plan_launches)
        us = timed([call])
        rate = work_of(call).nbytes / us / 1e3
        used = planned_shape(call)
        assert used is not None
        label = described(used)
        with_shape(case, None)
        wrong = "" if error < 2e-3 else "  WRONG"
        print(
            f"{case.name:44s} {apart:7.1f} us apart {us:7.1f} fused {rate:5.0f} GB/s "
            f"{rate / copy_rate:6.1%} x{apart / us:4.2f}  {error:.0e} {label}{wrong}",
            flush=True,
        )
        row = {"name": case.name, "apart": apart, "us": us, "error": error, "label": label}
        rows.append({**row, "gbps": rate, "shape": None if shape is None else label})
    return rows


if __name__ == "__main__":
    main()
