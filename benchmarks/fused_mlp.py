"""Measures the fused lowering of an MLP on a CUDA device: the step, its kernels, its tiles.

    python benchmarks/fused_mlp.py [--batch 200] [--widths 784,1024,512,256,10] [--steps 200]
        [--repeats 9] [--tiles] [--json FILE]

Every number is a median over repeats of a whole executable, with its spread. The fused step and
XLA's own lowering run in the same process, on the same data. ``--tiles`` times tile shapes on every
layer: a loop over chains of in-place calls of one kernel, so that a number is what a node of the
captured graph costs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls.in_place import InPlaceCall, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.calls.targets import FC_BACKWARD, FC_FORWARD, Launch
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.fc import fc_backward, fc_forward
from renaissance.lowering.launches.tiles import Tile
from renaissance.program.fused import FusedBackend

CALLS, UNROLLED = 1000, 10


def warm_up(seconds: float = 0.3) -> None:
    """Keep the device busy until its clocks are up: they fall while a program compiles."""
    x = jnp.ones((4096, 4096), jnp.float16)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds and jax.default_backend() == "gpu":
        jax.block_until_ready(x @ x)


def timed(run: Callable[[], Any], repeats: int, per: int, warm: float = 0.3) -> tuple[float, float]:
    """Median and spread of a call, in microseconds per ``per``-th part of it."""
    jax.block_until_ready(run())
    warm_up(warm)
    for _ in range(3):
        jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append((time.perf_counter() - begin) / per * 1e6)
    return statistics.median(times), max(times) - min(times)


def network(widths: list[int]) -> rn.Layer:
    """fc, ReLU, ..., fc."""
    hidden = [layer for width in widths[1:-1] for layer in (rn.fc(width), rn.relu())]
    return rn.seq(rn.flatten(), *hidden, rn.fc(widths[-1]))


def program(options: argparse.Namespace, fused: bool, amp: bool) -> rn.Program:
    """The benchmark's network with AdamW."""
    compiled = rn.compile(
        network(options.widths),
        (1, options.widths[0], 1),
        options.batch,
        amp=amp,
        optimizer=rn.AdamW(weight_decay=1e-4),
        scheduler=rn.Constant(1e-3),
        lowering="xla",
    )
    if fused:
        compiled.backend = FusedBackend(compiled.config, compiled.graph)
    return compiled


def step_times(options: argparse.Namespace, fused: bool, amp: bool) -> dict[str, Any]:
    """Time of a step inside a many-step executable, and called one at a time."""
    compiled = program(options, fused, amp)
    rng = np.random.default_rng(0)
    shape = (options.steps, options.batch, 1, options.widths[0], 1)
    images = jnp.asarray(rng.standard_normal(shape, np.float32))
    labels = jnp.asarray(rng.integers(0, options.widths[-1], shape[:2]).astype(np.int32))
    state = [compiled.init(0)]
    losses = []

    def many() -> Any:
        state[0], metrics = compiled.train_steps(state[0], (images, labels))
        losses.append(metrics["loss"])
        return state[0]

    many_steps = timed(many, options.repeats, options.steps)
    one = (jax.device_put(images[0]), jax.device_put(labels[0]))

    def single() -> Any:
        for _ in range(50):
            state[0], _ = compiled.train_step(state[0], one)
        return state[0]

    single_steps = timed(single, options.repeats, 50)
    first, last = float(losses[0][0]), float(losses[-1][-1])
    result = {"many": many_steps, "single": single_steps, "loss": (first, last)}
    return {**result, "sha256": compiled.sha256(state[0])[:16]}


def call_time(
    backend: FusedBackend, call: InPlaceCall, launches: list[Launch], repeats: int
) -> tuple[float, float]:
    """Time of one call as a node among many of its kind."""
    sizes = backend.arena.bank_bytes
    banks = {bank: jnp.zeros(sizes[bank], jnp.uint8) for bank in call.banks}
    names = list(banks)

    def loop(arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        def body(index: jax.Array, arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            current = dict(zip(names, arrays, strict=True))
            for _ in range(UNROLLED):
                current, _ = thread([call], current, {}, lambda call: launches)
            return tuple(current[name] for name in names)

        return jax.lax.fori_loop(0, CALLS // UNROLLED, body, arrays)

    compiled = jax.jit(loop, donate_argnums=0).lower(tuple(banks.values())).compile()
    held = [tuple(banks.values())]

    def run() -> Any:
        held[0] = compiled(held[0])
        return held[0]

    return timed(run, repeats, CALLS, warm=0.05)


def kernel_times(options: argparse.Namespace, amp: bool) -> list[tuple[str, float, float]]:
    """Every call of the step on its own, in order."""
    compiled = program(options, True, amp)
    backend = compiled.backend
    assert isinstance(backend, FusedBackend)
    calls = train_pass(compiled.graph, Scene(compiled.memory, backend.recipe)).calls
    rows = []
    for call in calls:
        if any(bank is Bank.INPUT_B for bank in call.banks) or call.target.name in (
            "rn_begin_step",
            "rn_end_step",
        ):
            continue
        median, spread = call_time(backend, call, list(backend.plan_launches(call)), 5)
        rows.append((str(call), median, spread))
    return rows


TILES = [
    Tile(m, n, k, warps_m, warps_n, splits, stages)
    for k, splits, stages in ((64, 2, 4), (64, 4, 3), (128, 4, 3), (64, 1, 4), (128, 2, 3))
    for m, n, warps_m, warps_n in (
        (64, 64, 2, 2),
        (64, 32, 2, 2),
        (32, 64, 1, 2),
        (32, 32, 1, 2),
        (32, 16, 1, 1),
    )
]


def tile_times(options: argparse.Namespace) -> list[tuple[float, str, Tile]]:
    """Every tile on every fp16 layer, forward and backward, until the time is used up."""
    compiled = program(options, True, True)
    backend = compiled.backend
    assert isinstance(backend, FusedBackend)
    kernels: Any = backend.plan_launches
    plans = {FC_FORWARD: fc_forward, FC_BACKWARD: fc_backward}
    calls = train_pass(compiled.graph, Scene(compiled.memory, backend.recipe)).calls
    cases = [
        (call, tile, plans[call.target](call, tile))
        for tile in TILES
        for call in calls
        if call.target in plans
    ]
    begin = time.perf_counter()
    with ThreadPoolExecutor() as pool:  # the compiler works outside Python's lock
        list(pool.map(lambda case: kernels.compiler.compile(case[2][0].kernel), cases))
    print(f"{len(cases)} kernels in {time.perf_counter() - begin:.1f} s", flush=True)
    rows = []
    for call, tile, planned in cases:
        if time.perf_counter() - begin > options.tile_seconds:
            break
        launches = [kernels.launch(one) for one in planned]
        rows.append((call_time(backend, call, launches, 3)[0], str(call), tile))
    return sorted(rows, key=lambda row: (row[1], row[0]))


def main() -> None:
    """Run what was asked for and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=200)
    widths = "784,1024,512,256,10"
    parser.add_argument("--widths", type=lambda t: [int(x) for x in t.split(",")], default=widths)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--tile-seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if isinstance(options.widths, str):
        options.widths = [int(x) for x in options.widths.split(",")]
    report: dict[str, Any] = {"device": str(jax.local_devices()[0]), "jax": jax.__version__}
    print(report)
    for amp in (True, False):
        for fused in (True, False):
            key = f"{'fused' if fused else 'xla'} {'amp' if amp else 'fp32'}"
            report[key] = step_times(options, fused, amp)
            print(f"{key:12s} {report[key]}", flush=True)
    for amp in (True, False):
        for name, median, spread in kernel_times(options, amp):
            print(
                f"{'amp' if amp else 'fp32'} {name:50s} {median:7.2f} us +- {spread:.2f}",
                flush=True,
            )
    if options.tiles:
        rows = tile_times(options)
        report["tiles"] = [(time, name, str(tile)) for time, name, tile in rows]
        for name in dict.fromkeys(row[1] for row in rows):
            for time_us, _, tile in [row for row in rows if row[1] == name][:4]:
                print(f"{name:28s} {time_us:7.2f} us {tile}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, default=str))


if __name__ == "__main__":
    main()
