"""The curves of a run as a picture, where matplotlib (the ``plot`` extra) is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from renaissance.task.metrics import EpochRecord


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_curve(records: Sequence[EpochRecord], path: Path, title: str) -> bool:
    """Draw loss and top-1 over the epochs into a PNG file.

    Args:
        records: The epochs of a run, in order.
        path: The picture, replaced if it exists.
        title: Printed above the curves.

    Returns:
        Whether a picture was drawn: not without matplotlib, nor without records.
    """
    if not records or not can_draw():
        return False
    from matplotlib.figure import Figure  # heavy and optional

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    figure.suptitle(title)
    losses, accuracies = figure.subplots(1, 2)
    for axes, column, scale in ((losses, "loss", 1), (accuracies, "top1", 100)):
        for prefix, colour in (("train", "tab:gray"), ("val", "tab:blue"), ("ema", "tab:orange")):
            points = [
                (r.epoch, scale * value)
                for r in records
                if (value := getattr(r, f"{prefix}_{column}")) is not None
            ]
            if points:
                axes.plot(*zip(*points, strict=True), label=prefix, color=colour, marker=".")
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
        axes.legend()
    losses.set_ylabel("loss")
    accuracies.set_ylabel("top-1, %")
    figure.savefig(path, dpi=110, format="png")
    return True
