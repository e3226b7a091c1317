"""What a profile found, and how it is shown: sub-graphs, then calls, the worst loss first."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device can do at best.

    Attributes:
        flops: Operations of a large matrix product, a second.
        bandwidth: Bytes that a large copy reads and writes, a second.
    """

    flops: float
    bandwidth: float

    def __str__(self) -> str:
        return f"{self.flops / 1e12:.3g} TFLOP/s, {self.bandwidth / 1e9:.4g} GB/s"


H200 = Rates(790e12, 4.3e12)
"""An H200's rates in fp16, measured; give them where a run shall be held against them."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A call, or several added up.

    Attributes:
        segment: The sub-graph it belongs to.
        name: The call.
        us: Measured microseconds.
        nbytes: Bytes it has to move at least.
        flops: Operations of its products.
        floor_us: Microseconds below which the device cannot be.
    """

    segment: str
    name: str
    us: float
    nbytes: int
    flops: int
    floor_us: float

    @property
    def gb_per_second(self) -> float:
        """Gigabytes a second, of the bytes it has to move."""
        return self.nbytes / self.us / 1e3

    @property
    def tflops(self) -> float:
        """TFLOP/s reached."""
        return self.flops / self.us / 1e6

    @property
    def ratio(self) -> float:
        """Measured over floor; infinite where there is nothing to do."""
        return self.us / self.floor_us if self.floor_us else float("inf")

    @property
    def lost_us(self) -> float:
        """Microseconds above the floor."""
        return self.us - self.floor_us


@dataclass(frozen=True)
class Profile:
    """A train step taken apart.

    Attributes:
        title: Network and batch.
        precision: ``"amp"``, ``"fp32"`` or ``"fp64"``.
        lowering: Which one ran.
        device: What was measured; a CPU where there is nothing else.
        rates: What it can do at best.
        step_us: Microseconds of a whole step, called from Python.
        rows: One a call, in the order of the step; none in the XLA lowering.
    """

    title: str
    precision: str
    lowering: str
    device: str
    rates: Rates
    step_us: float
    rows: tuple[ProfileRow, ...]

    def segments(self) -> tuple[ProfileRow, ...]:
        """The calls added up by sub-graph, the one that loses most first."""
        names = dict.fromkeys(row.segment for row in self.rows)
        return _sorted(
            added(name, (row for row in self.rows if row.segment == name)) for name in names
        )

    def calls(self) -> tuple[ProfileRow, ...]:
        """Every call, the one that loses most first."""
        return _sorted(self.rows)

    def table(self, most: int | None = None) -> str:
        """Two tables for a person.

        Args:
            most: Calls shown at most.
        """
        head = (
            f"{self.title}, {self.precision}, {self.lowering} lowering, on {self.device}; "
            f"at best {self.rates}\na step called from Python: {self.step_us:,.1f} us"
        )
        if not self.rows:
            return (
                f"{head}\nno times of single sub-graphs: the XLA lowering compiles the step as a "
                "whole; use lowering='fused'"
            )
        total = added("sum of calls", self.rows)
        segments, calls = (*self.segments(), total), self.calls()
        shown = calls if most is None else calls[:most]
        left_out = f"\n... and {len(calls) - len(shown)} more" if len(shown) < len(calls) else ""
        return (
            f"{head}\n\n{_table('sub-graph', [(row, row.segment) for row in segments])}"
            f"\n\n{_table('call', [(row, row.name) for row in shown])}{left_out}"
        )

    def write_csv(self, path: Path | str) -> None:
        """One row a call, in the order of the step."""
        with Path(path).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["segment", "call", "us", "bytes", "flops", "floor_us", "lost_us"])
            for r in self.rows:
                figures = (f"{r.us:.4f}", r.nbytes, r.flops, f"{r.floor_us:.4f}")
                writer.writerow([r.segment, r.name, *figures, f"{r.lost_us:.4f}"])


def added(name: str, rows: Iterable[ProfileRow]) -> ProfileRow:
    """Several rows as one."""
    held = list(rows)
    return ProfileRow(
        name,
        name,
        sum(row.us for row in held),
        sum(row.nbytes for row in held),
        sum(row.flops for row in held),
        sum(row.floor_us for row in held),
    )


def _sorted(rows: Iterable[ProfileRow]) -> tuple[ProfileRow, ...]:
    return tuple(sorted(rows, key=lambda row: -row.lost_us))


def _table(title: str, rows: list[tuple[ProfileRow, str]]) -> str:
    width = max(len(title), *(len(name) for _, name in rows))
    lines = [
        f"{title:{width}}{'us':>12}{'MB':>10}{'GB/s':>9}{'TFLOP/s':>9}{'floor':>11}"
        f"{'ratio':>8}{'lost us':>12}"
    ]
    lines += [
        f"{name:{width}}{r.us:12,.2f}{r.nbytes / 1e6:10,.2f}{r.gb_per_second:9,.1f}{r.tflops:9.2f}"
        f"{r.floor_us:11,.2f}{r.ratio:8.2f}{r.lost_us:12,.2f}"
        for r, name in rows
    ]
    return "\n".join(lines)
