"""Many steps of an MLP in one executable: the persistent kernel, the chain and XLA, in one run.

    python benchmarks/many_steps.py [--widths 1024,512,256] [--batch 200] [--steps 2000]

784-1024-512-256-10 with AdamW under AMP unless said otherwise. Batches are a stack of fp32 pictures
on the device, or rows of a data set of bytes there, by indices. Times are wall clock around the
call, median of nine calls with their spread, the clocks warmed up; they include Python's dispatch.
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

REPEATS, SAMPLES, INPUT, CLASSES = 9, 60_000, 784, 10
VALUES = ((np.arange(256) / 255 - 0.1307) / 0.3081).astype(np.float16)
WAYS = (("persistent", "fused"), ("chain", "fused"), ("auto", "xla"))


def microseconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Median and spread of a call."""
    for _ in range(3):
        jax.block_until_ready(call())
    warm_up()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times), max(times) - min(times)


def main() -> None:
    """Print a row for every way, form of the batches and number of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", default="1024,512,256")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    hidden = [int(width) for width in options.widths.split(",")]
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (SAMPLES, 1, INPUT, 1), dtype=np.uint8)
    teacher = rng.normal(size=(INPUT, CLASSES)).astype(np.float32)
    scores = VALUES.astype(np.float32)[pictures].reshape(SAMPLES, INPUT) @ teacher
    images, labels = jnp.asarray(pictures), jnp.asarray(scores.argmax(1).astype(np.int32))
    rows = jnp.asarray(rng.integers(0, SAMPLES, (options.steps, options.batch)).astype(np.int32))
    values = jnp.asarray(VALUES)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {hidden}, batch {options.batch}")
    print(f"{'way':12s} {'batches':8s} {'steps':>6s} {'us/step':>8s} {'spread':>7s}  loss")
    for loop, lowering in WAYS:
        program = rn.compile(
            network([INPUT, *hidden, CLASSES]),
            (1, INPUT, 1),
            options.batch,
            amp=True,
            optimizer=rn.AdamW(weight_decay=1e-4),
            scheduler=rn.Constant(1e-3),
            lowering=lowering,
            loop=loop,
        )
        name = "xla" if lowering == "xla" else loop
        for form, steps in (("stack", 200), ("rows", 10), ("rows", 200), ("rows", options.steps)):
            given: tuple[Any, ...] = ((images, labels), rows[:steps])
            extra: dict[str, Any] = {"values": values}
            if form == "stack":
                stack = values.astype(jnp.float32)[images[rows[:steps]].astype(jnp.int32)]
                given, extra = ((stack, labels[rows[:steps]]),), {}
            state = [program.init(0)]
            losses: list[Any] = []

            def call(
                program: Any = program,
                given: Any = given,
                extra: Any = extra,
                state: Any = state,
                losses: Any = losses,
            ) -> Any:
                state[0], metrics = program.train_steps(state[0], *given, **extra)
                losses.append(metrics)
                return state[0]

            median, spread = microseconds(call)
            first, last = losses[0]["loss"][0], losses[-1]["loss"][-1]
            print(
                f"{name:12s} {form:8s} {steps:6d} {median / steps:8.2f} {spread / steps:7.2f}  "
                f"{first:.3f} to {last:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
