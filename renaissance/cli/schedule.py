"""``renaissance show schedule``: a learning-rate schedule as a plot in the terminal."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from renaissance.algo import scheduler as schedules
from renaissance.algo.scheduler import Scheduler
from renaissance.core.errors import check_int, fail

SCHEDULES: dict[str, type[Scheduler]] = {
    "constant": schedules.Constant,
    "step": schedules.Step,
    "multi-step": schedules.MultiStep,
    "exponential": schedules.Exponential,
    "polynomial": schedules.Polynomial,
    "cosine": schedules.CosineAnnealing,
    "warm-restarts": schedules.CosineAnnealingWithWarmRestarts,
    "wsd": schedules.WSD,
}

# option -> (type, help); each is the field of the same name, of the schedules that have one
_FIELDS: dict[str, tuple[type, str]] = {
    "base_lr": (float, "rate after the warm-up"),
    "warmup": (float, "epochs of linear warm-up"),
    "warmup_start_lr": (float, "rate at the start of the warm-up"),
    "warmup_start_factor": (float, "the same as a multiple of the base rate"),
    "by": (str, "batch or epoch: when the rate changes"),
    "size": (int, "step: epochs between drops"),
    "milestones": (int, "multi-step: epochs at which the rate drops"),
    "gamma": (float, "step, multi-step, exponential: factor of a drop"),
    "power": (float, "polynomial: exponent"),
    "end_lr": (float, "polynomial, wsd: rate at the end"),
    "eta_min": (float, "cosine, warm-restarts: lowest rate"),
    "t_0": (int, "warm-restarts: epochs of the first period"),
    "t_mult": (int, "warm-restarts: factor from period to period"),
    "decay_start": (float, "wsd: fraction of the run at which the decay begins"),
}

_DESCRIPTION = """\
Print a learning-rate schedule as a plot.

  renaissance show schedule cosine --base-lr 0.1 --warmup 5 --epochs 90
  renaissance show schedule multi-step --base-lr 0.1 --milestones 30 60 80 --by epoch
"""


def add_parser(subparsers: Any) -> None:
    """Add ``schedule`` and its arguments."""
    parser = subparsers.add_parser(
        "schedule",
        help="print or plot a learning-rate schedule",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that :func:`run` reads."""
    parser.add_argument(
        "schedule", choices=SCHEDULES, metavar="SCHEDULE", help=", ".join(SCHEDULES)
    )
    group = parser.add_argument_group("schedule")
    for name, (kind, purpose) in _FIELDS.items():
        group.add_argument(
            _option(name),
            type=kind,
            help=purpose,
            required=name == "base_lr",
            nargs="+" if name == "milestones" else None,
            choices=("batch", "epoch") if name == "by" else None,
        )
    group = parser.add_argument_group("run")
    group.add_argument("--epochs", type=int, default=90, help="length of the run (90)")
    group.add_argument("--steps-per-epoch", type=int, default=100, help="steps in an epoch (100)")
    group = parser.add_argument_group("output")
    group.add_argument("--width", type=int, help="columns of the plot (the terminal's)")
    group.add_argument("--height", type=int, default=15, help="rows of the plot (15)")
    group.add_argument(
        "--picture", type=Path, metavar="FILE", help="write a PNG, SVG or PDF too (extra: plot)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the schedule, and draw it if asked."""
    schedule = make_schedule(options)
    table = schedule.table(options.steps_per_epoch, options.epochs)
    width = options.width or min(100, shutil.get_terminal_size((80, 24)).columns)
    print(schedule)
    print(f"{options.epochs} epochs of {options.steps_per_epoch} steps; {_summary(table)}")
    print()
    for line in text_plot(table, options.epochs, width=width, height=options.height):
        print(line)
    if options.picture is not None:
        draw(table, options.epochs, str(schedule), options.picture)
        print(f"\nwrote {options.picture}")
    return 0


def make_schedule(options: argparse.Namespace) -> Scheduler:
    """The schedule that the options describe.

    Raises:
        ValueError: An option that the schedule has no use for, or one that it needs and lacks.
    """
    kind = SCHEDULES[options.schedule]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    given = {n: getattr(options, n) for n in _FIELDS if getattr(options, n) is not None}
    for name, value in given.items():
        if name not in fields:
            known = ", ".join(_option(n) for n in fields)
            fail(ValueError, _option(name), value, f"one of {options.schedule}'s options: {known}")
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING:
            fail(ValueError, _option(name), None, f"a value: {options.schedule} needs one")
    return kind(**given)


def text_plot(
    table: NDArray[np.float32], epochs: int, *, width: int = 80, height: int = 15
) -> list[str]:
    """A plot in plain characters, from 0 to the highest rate.

    Args:
        table: The rate of every step.
        epochs: Epochs that the steps make up, for the lower axis.
        width: Characters of a line, >= 30.
        height: Rows of the plot, >= 2.

    Returns:
        Lines without trailing blanks.
    """
    width, height = check_int("width", width, 30), check_int("height", height, 2)
    columns = width - 11
    highest = float(table.max()) or 1.0
    rows = [[" "] * columns for _ in range(height)]
    for column in range(columns):
        part = table[_span(column, columns, len(table))]
        low, high = (round(float(x) / highest * (height - 1)) for x in (part.min(), part.max()))
        for level in range(low, high + 1):
            rows[height - 1 - level][column] = "*"
    labelled = {round(third * (height - 1) / 3) for third in range(4)}
    lines = []
    for index, row in enumerate(rows):
        level = height - 1 - index
        label = f"{highest * level / (height - 1):.3g}" if level in labelled else ""
        lines.append(f"{label:>9} |{''.join(row)}".rstrip())
    lines.append(" " * 10 + "+" + "-" * columns)
    left, right = "epoch 0", str(epochs)
    lines.append(" " * 11 + left + right.rjust(columns - len(left)))
    return lines


def draw(table: NDArray[np.float32], epochs: int, title: str, path: Path) -> None:
    """Draw the schedule into a picture.

    Args:
        table: The rate of every step.
        epochs: Epochs that the steps make up.
        title: Printed above the curve.
        path: The file; its ending chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # heavy and optional
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{path} needs matplotlib, which is not installed: pip install 'renaissance[plot]'"
        ) from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize="small", wrap=True)
    axes.step(np.arange(len(table)) * epochs / len(table), table, where="post")
    axes.set_xlabel("epoch")
    axes.set_ylabel("learning rate")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")


def _span(column: int, columns: int, steps: int) -> slice:
    """The steps that a column stands for: at least one."""
    first = column * steps // columns
    return slice(first, max(first + 1, (column + 1) * steps // columns))


def _summary(table: NDArray[np.float32]) -> str:
    peak = int(np.argmax(table))
    return (
        f"first rate {table[0]:.4g}, highest {table[peak]:.4g} from step {peak}, "
        f"last {table[-1]:.4g}"
    )
