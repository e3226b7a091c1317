"""Run the contestants one after the other, check that they agree, put the figures in a table."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np

from renaissance.compare.contestant import check_names
from renaissance.compare.workload import Workload

# Relative error against the first contestant, of the loss and of all gradients together. In fp16 a
# deep untrained net's gradient is mostly rounding (ResNet-50 at batch 256: 50 % between PyTorch
# and XLA, ResNet-18 12 % between fp16 and fp32 in XLA alone): there only an unlike net is found.
LOSS_TOLERANCE = {True: 1e-2, False: 1e-4}
GRADIENT_TOLERANCE = {True: 0.75, False: 1e-3}
TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Result:
    """Figures of one contestant; ``failure`` says why there are none.

    Attributes:
        name: The contestant.
        times: Seconds per step, one per repeat.
        loss: Of the first step.
        ready: Seconds from start to the first warm step, compilation included.
        memory: Bytes on the device.
        device: What it ran on.
        worst: The gradient that differs most from the first contestant's, and by how much.
        failure: Why it did not run, or that its loss or gradients differ from the first's.
    """

    name: str
    times: tuple[float, ...] = ()
    loss: float = float("nan")
    ready: float = float("nan")
    memory: dict[str, int] = field(default_factory=dict)
    device: str = ""
    worst: tuple[str, float] = ("", 0.0)
    failure: str = ""

    @property
    def median(self) -> float:
        """Median seconds per step."""
        return median(self.times) if self.times else float("nan")


@dataclass(frozen=True)
class Comparison:
    """All results of a workload, in the order given; the first is the one compared with."""

    workload: Workload
    results: tuple[Result, ...]

    def table(self) -> str:
        """Time, spread, images/s, ratio, memory, agreement; one line a contestant."""
        w = self.workload
        precision = "fp16 AMP" if w.amp else "fp32"
        device = next((r.device for r in self.results if r.device), "no device")
        lines = [
            f"{w.net}, batch {w.batch}, {w.height}x{w.width}x{w.channels}, {w.optimizer}, "
            f"{precision}, on {device}; median of {w.repeats} x {w.steps} steps",
            f"{'':16}{'ms/step':>10}{'spread':>9}{'images/s':>12}{'ratio':>8}"
            f"{'peak GiB':>10}{'planned':>9}{'temp':>8}  gradients differ at most",
        ]
        base = self.results[0].median
        return "\n".join([*lines, *(self._line(result, base) for result in self.results)])

    def _line(self, r: Result, base: float) -> str:
        if r.failure:
            return f"{r.name:16}  {'disagrees' if r.times else 'did not run'}: {r.failure}"
        spread = (max(r.times) - min(r.times)) / r.median
        memory = [
            f"{r.memory[key] / 2**30:.2f}" if key in r.memory else "-"
            for key in ("peak", "planned", "temp")
        ]
        return (
            f"{r.name:16}{r.median * 1e3:10.4f}{spread:9.1%}{self.workload.batch / r.median:12,.0f}"
            f"{r.median / base:8.2f}{memory[0]:>10}{memory[1]:>9}{memory[2]:>8}"
            f"  {r.worst[1]:.1e} {r.worst[0]}"
        )

    def write_csv(self, path: Path | str) -> None:
        """One row a contestant."""
        with Path(path).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["net", "batch", "contestant", "seconds", "loss", "peak", "failure"])
            for r in self.results:
                row = [self.workload.net, self.workload.batch, r.name, r.median, r.loss]
                writer.writerow([*row, r.memory.get("peak", ""), r.failure])


def compare(workload: Workload, contestants: Sequence[str]) -> Comparison:
    """Run a workload with each contestant.

    Args:
        workload: What to do.
        contestants: Names, see :func:`renaissance.compare.contestant.make`; ratios and agreement
            are against the first.

    Raises:
        ValueError: A contestant is unknown.
    """
    check_names(contestants)
    with tempfile.TemporaryDirectory() as directory:
        results = [_run(name, workload, Path(directory)) for name in contestants]
        checked = _check_agreement(workload, results, Path(directory))
    return Comparison(workload, tuple(checked))


def _run(name: str, workload: Workload, directory: Path) -> Result:
    command = [sys.executable, "-m", "renaissance.compare.worker", name, workload.to_json()]
    try:
        done = subprocess.run(
            [*command, str(directory)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Result(name, failure=f"not ready after {TIMEOUT_SECONDS} s")
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        return Result(name, failure=last[-1][:300])
    report = json.loads((directory / f"{name}.json").read_text())
    return Result(
        name,
        tuple(report["times"]),
        report["loss"],
        report["ready"],
        report["memory"],
        report["device"],
    )


def _check_agreement(
    workload: Workload, results: Sequence[Result], directory: Path
) -> list[Result]:
    ran = [r for r in results if not r.failure]
    if not ran:
        return list(results)
    reference = dict(np.load(directory / f"{ran[0].name}.npz"))
    checked = []
    for r in results:
        if not r.failure:
            moments = np.load(directory / f"{r.name}.npz")
            errors = {name: _difference(moments[name], value) for name, value in reference.items()}
            worst = max(errors, key=lambda name: errors[name])
            total = _total_difference(moments, reference)
            r = replace(
                r, worst=(worst, errors[worst]), failure=_disagreement(workload, r, ran[0], total)
            )
        checked.append(r)
    return checked


def _disagreement(workload: Workload, r: Result, reference: Result, total: float) -> str:
    """Why times may not be compared; empty if they may."""
    limit = LOSS_TOLERANCE[workload.amp]
    if not abs(r.loss - reference.loss) <= limit * abs(reference.loss):
        return f"its loss is {r.loss:g}, that of {reference.name} {reference.loss:g}"
    # one tensor's gradient may cancel to nothing, as a bias's before a batch norm: all must agree
    limit = GRADIENT_TOLERANCE[workload.amp]
    if not total <= limit:
        return (
            f"its gradients differ from those of {reference.name} by {total:.1e}, expected at most "
            f"{limit:g}; most in {r.worst[0]} ({r.worst[1]:.1e})"
        )
    return ""


def _difference(ours: np.ndarray, reference: np.ndarray) -> float:
    norm = float(np.linalg.norm(reference)) or 1.0
    return float(np.linalg.norm(ours - reference)) / norm


def _total_difference(ours: np.lib.npyio.NpzFile, reference: dict[str, np.ndarray]) -> float:
    error = sum(float(np.sum((ours[n] - value) ** 2)) for n, value in reference.items())
    size = sum(float(np.sum(value**2)) for value in reference.values())
    return (error / size) ** 0.5
