"""Do twenty steps through the fused lowering stay where the reference's own rounding leaves it?

    python benchmarks/trajectories.py resnet50 [--batch 256] [--steps 20] [--orders 3] [--rate 0.01]

The reference (XLA) trains several times on the same batches, each time with the rows of every batch
in another order: the same step in exact arithmetic, in floating point other sums. What their losses
span at a step is the band. The fused lowering trains once, on the rows in their first order.
Printed are the band and the fused loss at every step, how many steps lie inside the band, and the
distance of the fused losses from the band's middle against that of the references (root mean
squares over all steps).
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

import renaissance as rn
from renaissance import models
from renaissance.compare import Workload

BATCHES = 2
SCALE = 2.0**8  # small enough that no step overflows and is skipped


def losses(workload: Workload, lowering: str, rate: float, orders: list[int]) -> np.ndarray:
    """Losses of ``workload.steps`` steps, a row for every order of the batches' rows."""
    options: dict[str, Any] = {**workload.compile_options(), "scheduler": rn.Constant(rate)}
    options["loss_scale"] = rn.LossScale(SCALE)
    program = rn.compile(workload.blueprint(), **options, lowering=lowering)
    batches = [workload.batch_of(index) for index in range(BATCHES)]
    found = []
    for order in orders:
        rows = np.arange(workload.batch)
        if order:
            rows = np.random.default_rng(order).permutation(workload.batch)
        given = [(jax.device_put(x[rows]), jax.device_put(y[rows])) for x, y in batches]
        state: Any = program.init(workload.seed)
        row = []
        for step in range(workload.steps):
            state, metrics = program.train_step(state, given[step % BATCHES])
            row.append(float(metrics["loss"]))
        found.append(row)
        del state, given
    return np.array(found)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square of a difference."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=models.names(), metavar="NETWORK")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--resolution", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.01)
    options = parser.parse_args()
    height, width, channels = models.default_input_shape(options.network)
    if options.resolution:
        height = width = options.resolution
    classes = 1000 if height > 64 else 10
    name, batch = options.network, options.batch
    workload = Workload(name, batch, height, width, channels, classes, steps=options.steps)
    fused = losses(workload, "fused", options.rate, [0])[0]
    references = losses(workload, "xla", options.rate, list(range(options.orders)))
    low, high = references.min(0), references.max(0)
    print(f"{name}, batch {batch}, {jax.devices()[0].device_kind}; loss at every step")
    print(f"{'step':>4}{'lowest':>10}{'highest':>10}{'fused':>10}")
    for step in range(options.steps):
        outside = "" if low[step] <= fused[step] <= high[step] else "  outside"
        print(f"{step:4}{low[step]:10.4f}{high[step]:10.4f}{fused[step]:10.4f}{outside}")
    middle = references.mean(0)
    own = max(distance(row, middle) for row in references)
    inside = int(((low <= fused) & (fused <= high)).sum())
    print(f"{inside} of {options.steps} steps inside the band; distance from the middle")
    print(f"fused {distance(fused, middle):.4f}, farthest reference {own:.4f}")


if __name__ == "__main__":
    main()
