"""Our own lowerings as contestants: single calls, or many steps in one executable."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import renaissance as rn
from renaissance.compare.contestant import FirstStep
from renaissance.compare.workload import LEARNING_RATE, Workload
from renaissance.runtime.arena import BankState

# batches that rotate, so that a small net's input does not simply stay in a cache
ROTATION = 4


class ProgramContestant:
    """A program of one lowering."""

    def __init__(self, workload: Workload, lowering: str, *, loop: bool):
        self.workload = workload
        self.loop = loop
        self.program = rn.compile(
            workload.blueprint(),
            **workload.compile_options(),
            scheduler=rn.Constant(LEARNING_RATE),
            lowering=lowering,
        )
        self.state: Any = self.program.init(workload.seed)
        count = workload.steps if loop else ROTATION
        batches = [workload.batch_of(i % ROTATION) for i in range(count)]
        self.batches = [(jax.device_put(x), jax.device_put(y)) for x, y in batches[:ROTATION]]
        if loop:
            images, labels = (np.stack(column) for column in zip(*batches, strict=True))
            self.stacked = jax.device_put(images), jax.device_put(labels)

    @property
    def steps_per_call(self) -> int:
        """All steps of a repeat in a loop, else one."""
        return self.workload.steps if self.loop else 1

    def first_step(self) -> FirstStep:
        """One single step, whatever the mode."""
        self.state, metrics = self.program.train_step(self.state, self.batches[0])
        groups = {name: spec.group for name, spec, _ in self.program.plan.weights()}
        regions = {group: self.state[group.region("M")] for group in set(groups.values())}
        moments = {name: regions[group][name] for name, group in groups.items()}
        return FirstStep(float(metrics["loss"]), moments)

    def run(self, steps: int) -> None:
        """Steps in single calls, or in calls of a whole loop."""
        state = self.state
        if self.loop:
            for _ in range(steps // self.steps_per_call):
                state, _ = self.program.train_steps(state, self.stacked)
        else:
            for i in range(steps):
                state, _ = self.program.train_step(state, self.batches[i % ROTATION])
        self.state = jax.block_until_ready(state)

    def memory(self) -> dict[str, int]:
        """Peak of the allocator, XLA's temporaries, and the planned banks it holds."""
        held = self.state.arrays if isinstance(self.state, BankState) else ()
        found = {"planned": sum(array.nbytes for array in held)} if held else {}
        statistics = jax.local_devices()[0].memory_stats()
        if statistics:
            found["peak"] = int(statistics["peak_bytes_in_use"])
        shape = (self.workload.batch, *self.workload.shape)
        found["temp"] = self.program.backend.executable("train_step", shape).temp_bytes
        return found
