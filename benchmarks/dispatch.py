"""Measures what one call of a train step costs on the host, and which part of it is whose.

    python benchmarks/dispatch.py [--batch 200] [--widths 784,1024,512,256,10] [--calls 20]

Every line is a way to call the same fused step of an MLP:

    program      program.train_step, with its checks
    executable   the compiled step alone, without our Python
    plus one     what JAX takes for as many arrays where there is nothing to do
    fixed table  the table of metrics donated as well, so that no address ever changes
    no graph     XLA launches the kernels one by one instead of as a captured graph
    rotating     four batches in turn, so that the input's address changes

``issue`` is the time until a call returns, with the device far behind; ``done`` the time of a call
when many are waited for together. Where ``done`` is ``issue``, the host is the limit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fused_mlp import network, warm_up

import renaissance as rn
from renaissance.core.types import DType, Variant
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import FusedPass, empty_table, train_pass
from renaissance.runtime.arena import BankState

NO_GRAPH = {"xla_gpu_graph_min_graph_size": 1_000_000}
Call = Callable[[Any, Any], Any]


def measure(call: Call, carried: Any, batches: list[Any], calls: int) -> tuple[float, float, Any]:
    """Microseconds of issue and of completion of a call, medians of nine repeats."""
    issue, done = [], []
    for index in range(12):
        begin = time.perf_counter()
        for i in range(calls):
            carried = call(carried, batches[i % len(batches)])
        issued = time.perf_counter()
        jax.block_until_ready(carried)
        if index >= 3:
            issue.append((issued - begin) / calls * 1e6)
            done.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(issue), statistics.median(done), carried


def report(name: str, call: Call, carried: Any, batches: list[Any], calls: int) -> Any:
    """Print a line; gives back what is carried from call to call."""
    issue, done, carried = measure(call, carried, batches, calls)
    print(f"{name:34}{issue:10.1f} us issue{done:10.1f} us done", flush=True)
    return carried


def variants(compiled: rn.Program, batches: list[Any], calls: int) -> None:
    """The step as the backend compiles it, and otherwise."""
    backend: Any = compiled.backend
    scene = Scene(compiled.memory, backend.recipe, DType(str(batches[0][0].dtype)))
    fused: FusedPass = train_pass(compiled.graph, scene)

    def step(carried: Any, images: jax.Array, labels: jax.Array) -> Any:
        state, table = carried
        zero, launches = jnp.zeros((), jnp.int32), backend.plan_launches
        given = (state.banks, table, images[None], labels[None], zero, launches)
        banks, table = fused.run(*given)
        return BankState(state.arena, banks), table

    def fresh(state: Any, images: jax.Array, labels: jax.Array) -> Any:
        return step((state, empty_table(1)), images, labels)

    for graph, options in (("", {}), (", no graph", NO_GRAPH)):
        state: Any = compiled.init(0)
        given: Any = (state, *batches[0])
        made = jax.jit(fresh, donate_argnums=0, keep_unused=True).lower(*given).compile(options)
        alone: Call = lambda state, batch, made=made: made(state, *batch)[0]  # noqa: E731
        state = report(f"executable{graph}", alone, state, batches[:1], calls)
        state = report(f"executable, rotating{graph}", alone, state, batches, calls)
        carried = (state, empty_table(1))
        given = (carried, *batches[0])
        made = jax.jit(step, donate_argnums=0, keep_unused=True).lower(*given).compile(options)
        fixed: Call = lambda carried, batch, made=made: made(carried, *batch)  # noqa: E731
        carried = report(f"fixed table{graph}", fixed, carried, batches[:1], calls)
        report(f"fixed table, rotating{graph}", fixed, carried, batches, calls)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--widths", default="784,1024,512,256,10")
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    print(jax.local_devices()[0].device_kind, "jax", jax.__version__, flush=True)
    for lowering in ("fused", "xla"):
        compiled = rn.compile(
            network(widths),
            (1, widths[0], 1),
            options.batch,
            amp=True,
            optimizer=rn.AdamW(weight_decay=1e-4),
            scheduler=rn.Constant(1e-3),
            lowering=lowering,
        )
        shape = compiled.config.options.shape_id(Variant.TRAIN_BASE)
        rng = np.random.default_rng(0)
        batches = [
            (
                jax.device_put(rng.standard_normal(tuple(shape), np.float32).astype(np.float16)),
                jax.device_put(rng.integers(0, widths[-1], shape[0]).astype(np.int32)),
            )
            for _ in range(4)
        ]
        warm_up()
        ours: Call = lambda state, batch, p=compiled: p.train_step(state, batch)[0]  # noqa: E731
        state = report(f"{lowering}: program", ours, compiled.init(0), batches[:1], options.calls)
        state = report(f"{lowering}: program, rotating", ours, state, batches, options.calls)
        made = compiled.backend.executable("train_step", tuple(shape)).compiled
        raw: Call = lambda state, batch, made=made: made(state, *batch)[0]  # noqa: E731
        leaves: Any = state.arrays if lowering == "fused" else state
        report(f"{lowering}: executable", raw, leaves, batches[:1], options.calls)
        if lowering == "fused":
            nothing = jax.jit(lambda arrays, _: [x + 1 for x in arrays], donate_argnums=0)
            small = [jnp.zeros(64, jnp.uint8) for _ in state.arrays]
            report("as many small arrays plus one", nothing, small, [None], options.calls)
            variants(compiled, batches, options.calls)


if __name__ == "__main__":
    main()
