"""One contestant in a process of its own: check, warm up, time, report as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from renaissance.compare.contestant import make
from renaissance.compare.workload import Workload


def main() -> None:
    """Arguments: contestant, workload as JSON, directory for the results."""
    name, workload, directory = sys.argv[1], Workload.from_json(sys.argv[2]), Path(sys.argv[3])
    began = time.perf_counter()
    contestant = make(name, workload)
    first = contestant.first_step()
    np.savez(directory / f"{name}.npz", **first.moments)  # type: ignore[arg-type]
    contestant.run(contestant.steps_per_call)
    ready = time.perf_counter() - began
    steps = max(workload.steps, contestant.steps_per_call)
    contestant.run(steps)
    times = []
    for _ in range(workload.repeats):
        start = time.perf_counter()
        contestant.run(steps)
        times.append((time.perf_counter() - start) / steps)
    report = {
        "loss": first.loss,
        "times": times,
        "ready": ready,
        "memory": contestant.memory(),
        "device": device_name(name),
    }
    (directory / f"{name}.json").write_text(json.dumps(report))


def device_name(contestant: str) -> str:
    """The device the contestant ran on."""
    if contestant.startswith("torch"):
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import jax

    return jax.devices()[0].device_kind


if __name__ == "__main__":
    main()
