"""Measures the joined 1x1 convolution against the calls it stands for.

    python benchmarks/pointwise.py [--batch 256] [--only PATTERN] [--variants PATTERN] [--json FILE]

Every distinct 1x1 convolution of ResNet-50's and MobileNetV2's train step, with the norm in front
of it where there is one: once as the separate calls (batch_norm_apply, then cuDNN's best plan with
statistics), once joined, in turn on several sets of operands, so that a small map is not read from
the cache that the call before filled. A number is an executable of many calls less an empty one.
Bytes are what the joined call must move: each operand once. Before that, both run once on the same
operands: y must have the same bits, the output and its statistics must agree within rounding.
With ``--variants``, joined calls are measured in several cuts.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import renaissance as rn
from renaissance import models
from renaissance.core.types import Bank, Variant
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches import pointwise as pointwise_launches
from renaissance.lowering.launches.pointwise import PointwiseShape, fits, prologue_of, shape_of
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.work import work_of
from renaissance.lowering.rewrites import pointwise as fuse_pointwise
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

BANKS = (Bank.SCRATCH, Bank.PERSISTENT)
NETS = (models.resnet50, models.mobilenet_v2)
SET_BYTES, MOST_SETS, CHAIN_US = 200 << 20, 8, 5000.0
PROLOGUES = ("plain", "norm", "norm add", "two norms add")


@dataclass(frozen=True)
class Pair:
    """The separate calls and the joined one, on the same operands."""

    name: str
    separate: tuple[InPlaceCall, ...]
    both: InPlaceCall


def pairs_of(net: Any, batch: int) -> Iterator[Pair]:
    """Every 1x1 convolution of a train step, with the norm before it."""
    program = rn.compile(
        net(), (224, 224, 3), batch, lowering="xla", optimizer=rn.SGD(momentum=0.9), amp=True,
        num_classes=1000, scheduler=rn.Constant(0.01),
    )  # fmt: skip
    scene = Scene(program.graph.memory[Variant.TRAIN_BASE], program.backend.recipe)
    calls = train_pass(program.graph, scene, simplified=False).calls
    for index, call in enumerate(calls):
        if not fuse_pointwise.is_pointwise(call):
            continue
        before = fuse_pointwise.norm_before(calls, index)
        for norm in {before, None}:
            both = fuse_pointwise.joined(calls, norm, index)
            if shape_of(both.attributes["c"], both.attributes["k"], prologue_of(both)) is None:
                continue
            separate = (call,) if norm is None else (calls[norm], call)
            yield Pair(described(both), separate, both)


def described(call: InPlaceCall) -> str:
    """A joined call in few words."""
    a = call.attributes
    what = PROLOGUES[prologue_of(call)] + ("", " relu", " relu6")[a["activation"]]
    return f"{what} {a['c']} to {a['k']}, {a['rows']} rows"


_MAPS = (0, 5, 10, 11, 12)  # x, shortcut, y, filters and output among the joined call's operands


def placed(pair: Pair, sets: int) -> tuple[list[Pair], dict[Bank, int]]:
    """The calls on banks of their own, ``sets`` times: maps in one, vectors and sums in another."""
    calls = (*pair.separate, pair.both)
    maps = {pair.both.operands[i] for i in _MAPS}
    workspace = pair.separate[-1].operands[3]
    ends = dict.fromkeys(BANKS, 0)
    at: dict[Any, Location] = {}
    results = []
    for _ in range(sets):
        at = {workspace: at[workspace]} if at else {}
        for place in (o for call in calls for o in call.operands if isinstance(o, Location)):
            if place in at:
                continue
            is_map = place in maps or place == workspace
            bank = Bank.SCRATCH if is_map else Bank.PERSISTENT
            at[place] = replace(place, bank=bank, offset=ends[bank])
            ends[bank] += -(-place.nbytes // 256) * 256
        moved = [replace(c, operands=tuple(at.get(o, o) for o in c.operands)) for c in calls]
        results.append(Pair(pair.name, tuple(moved[:-1]), moved[-1]))
    return results, ends


@partial(jax.jit, static_argnums=(0, 1))
def filled(maps: int, vectors: int) -> tuple[jax.Array, jax.Array]:
    """Random halves, small ones, and floats from 0.5 to 1.5."""
    block = 0.5 * jax.random.normal(jax.random.key(maps % 97), (1 << 20,), jnp.float16)
    block = jax.lax.bitcast_convert_type(block, jnp.uint8).reshape(-1)
    floats = jax.random.uniform(jax.random.key(1), (1 << 20,), jnp.float32, 0.5, 1.5)
    floats = jax.lax.bitcast_convert_type(floats, jnp.uint8).reshape(-1)
    many = jnp.tile(block, -(-maps // block.size))[:maps]
    few = jnp.tile(floats, -(-vectors // floats.size))[:vectors]
    return many, few


class Bench:
    """Runs calls on a device."""

    def __init__(self, plan_launches: Any, repeats: int):
        self.plan_launches, self.repeats, self.start_us = plan_launches, repeats, 0.0

    def run(self, calls: Sequence[InPlaceCall], ends: dict[Bank, int]) -> tuple[Any, Any]:
        """An executable of calls, and the banks after it ran once on fresh operands."""

        def chain(given: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            banks, _ = thread(calls, dict(zip(BANKS, given, strict=True)), {}, self.plan_launches)
            return tuple(banks[bank] for bank in BANKS)

        several = jax.jit(chain, donate_argnums=0)
        banks = filled(*(ends[bank] for bank in BANKS))
        return several, jax.block_until_ready(several(banks))

    def microseconds(self, calls: Sequence[InPlaceCall], ends: dict[Bank, int], of: int) -> float:
        """The median time of the whole chain over ``of``, its start left out."""
        several, banks = self.run(calls, ends)
        times = []
        for _ in range(self.repeats):
            begin = time.perf_counter()
            banks = jax.block_until_ready(several(banks))
            times.append((time.perf_counter() - begin) * 1e6)
        return (statistics.median(times) - self.start_us) / of


def agreement(bench: Bench, pair: Pair) -> str:
    """Empty, or how the joined call differs from the separate ones on the same operands."""
    (one,), ends = placed(pair, 1)
    parts = []
    for calls in (one.separate, (one.both,), (one.both,)):
        _, banks = bench.run(calls, ends)
        found = {}
        for name, index in (("y", 10), ("output", 12), ("mean", 15), ("inverse_std", 16)):
            place = one.both.operands[index]
            if isinstance(place, Location):
                found[name] = _values(
                    banks[BANKS.index(place.bank)], place, name in ("y", "output")
                )
        parts.append(found)
        del banks
    separate, joined, again = parts
    problems = [f"{n} not the same bits twice" for n in joined if (joined[n] != again[n]).any()]
    if "y" in joined and (joined["y"] != separate["y"]).any():
        problems.append("y has other bits")
    for name, limit in (("output", 1e-3), ("mean", 1e-3), ("inverse_std", 1e-3)):
        theirs = separate[name].astype(jnp.float32)
        error = jnp.linalg.norm(joined[name].astype(jnp.float32) - theirs) / jnp.linalg.norm(theirs)
        if not float(error) < limit:
            problems.append(f"{name} differs by {float(error):.1e}")
    return "; ".join(problems)


def _values(bank: jax.Array, place: Location, is_half: bool) -> jax.Array:
    dtype = jnp.float16 if is_half else jnp.float32
    piece = jax.lax.slice_in_dim(bank, place.offset, place.offset + place.nbytes)
    return jax.lax.bitcast_convert_type(piece.reshape(-1, dtype.dtype.itemsize), dtype)


def cuts(pair: Pair, options: argparse.Namespace) -> list[PointwiseShape]:
    """The cuts in which a joined call is measured, the chosen one first."""
    a, prologue = pair.both.attributes, prologue_of(pair.both)
    c, k = a["c"], a["k"]
    chosen = shape_of(c, k, prologue)
    assert chosen is not None
    wanted = [chosen]
    if options.variants and re.search(options.variants, pair.name):
        wanted += [replace(chosen, ahead=n, blocks=b) for n in range(4) for b in (1, 2)]
        wanted += [replace(chosen, filters=f) for f in (128, 64) if k % f == 0 and f < k]
    return [
        s
        for s in dict.fromkeys(wanted)
        if fits(s, c, prologue) and registers(s, prologue) * s.threads * s.blocks <= 1 << 16
    ]


def registers(shape: PointwiseShape, prologue: int) -> int:
    """About how many a thread needs: sums, packs and all the rest."""
    packs = 8 * (2 if prologue > 1 else 1) * (1 if shape.ahead else 1 + shape.depth)
    return shape.filters // 2 + packs + (64 if prologue else 40)


@contextmanager
def cut(shape: PointwiseShape) -> Iterator[None]:
    """Joined calls are cut like this while it lasts."""
    chosen = pointwise_launches.shape_of
    pointwise_launches.shape_of = lambda *_: shape
    yield
    pointwise_launches.shape_of = chosen


def recut(pair: Pair, shape: PointwiseShape) -> Pair:
    """The pair with as many blocks as this cut wants."""
    a = pair.both.attributes
    most = pair.separate[-1].attributes["partial_rows"]
    blocks = pointwise_launches.blocks_along(a["rows"], a["k"], shape, most)
    return replace(pair, both=replace(pair.both, attributes={**a, "partial_rows": blocks}))


def compile_all(pairs: Sequence[Pair], bench: Bench, options: argparse.Namespace) -> None:
    """Compile kernels and choose engines side by side."""
    if not isinstance(bench.plan_launches, CudaKernels):
        return
    begin = time.perf_counter()
    kernels = set()
    for pair in pairs:
        for shape in cuts(pair, options):
            with cut(shape):
                kernels |= {launch.kernel for launch in launches_of(pair.both)}
    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(bench.plan_launches.compiler.compile, kernels))
    for c in compiled:
        if c.resources and c.resources.spill_bytes and "pointwise" in c.kernel.source:
            print("spills", c.resources.spill_bytes, dict(c.kernel.constants))
    print(f"{len(kernels)} kernels in {time.perf_counter() - begin:.1f} s", flush=True)
    bench.plan_launches.prepare([call for pair in pairs for call in pair.separate])
    print(f"and all plans in {time.perf_counter() - begin:.1f} s", flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--variants", default="", help="those of which are cut in several ways")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="start no case after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench = Bench(launches_for(jax.local_devices()[0]), options.repeats)
    found = [p for net in NETS for p in pairs_of(net, options.batch)]
    counts = Counter(p.name for p in found)
    distinct = {p.name: p for p in found}
    pairs = [pair for name, pair in distinct.items() if re.search(options.only, name)]
    compile_all(pairs, bench, options)
    on_device = isinstance(bench.plan_launches, CudaKernels)  # else a trial of this script itself
    size = 1 << 28 if on_device else 1 << 20
    places = [Location(Bank.SCRATCH, i * size, size, "copy") for i in range(2)]
    copy = InPlaceCall(targets.COPY, (*places, None), {"bytes": size}, "copy")
    ends = {Bank.SCRATCH: 2 * size, Bank.PERSISTENT: 256}
    few, many = (bench.microseconds([copy] * n, ends, 1) for n in (4, 24))
    bench.start_us = few - (many - few) / 5
    rate = 2 * size / ((many - few) / 20) / 1e3
    print(f"copy {rate:.0f} GB/s, start {bench.start_us:.0f} us")
    print("how often, what, us separate, us joined, ratio, of the copy, cut")
    rows, began = [], time.perf_counter()
    for pair in pairs:
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        nbytes = work_of(pair.both).nbytes
        sets = max(1, min(MOST_SETS, SET_BYTES // nbytes)) if on_device else 2
        times = max(1, int(CHAIN_US / (sets * nbytes / 3e6))) if on_device else 1
        copies, ends = placed(pair, sets)
        chain = [call for one in copies for call in one.separate] * times
        apart = bench.microseconds(chain, ends, sets * times)
        for shape in cuts(pair, options):
            with cut(shape):
                new = recut(pair, shape)
                wrong = agreement(bench, new)
                copies, ends = placed(new, sets)
                us = bench.microseconds([one.both for one in copies] * times, ends, sets * times)
            share = nbytes / us / 1e3 / rate
            cutting = f"{shape.filters} filters, depth {shape.depth}, ahead {shape.ahead}, "
            cutting += f"{shape.blocks} x {shape.threads} threads"
            print(
                f"{counts[pair.name]} {pair.name:44s} {apart:7.1f} {us:7.1f} {apart / us:5.2f} "
                f"{share:4.0%} {cutting}  {wrong}",
                flush=True,
            )
            row = {"name": pair.name, "count": counts[pair.name], "separate_us": apart, "us": us}
            rows.append({**row, "bytes": nbytes, "cut": cutting, "problems": wrong})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
