"""``renaissance compare``: the same step by several lowerings and frameworks, in one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from renaissance import models

_DESCRIPTION = """\
Train the same network on the same batches in several ways, and compare.

  renaissance compare resnet50 --batch 256 --against xla,torch
  renaissance compare mlp --batch 200 --optimizer adamw --against xla-loop,xla,torch

Names: fused, xla (each also with -loop: many steps in one executable), torch, torch-compile,
torch-graph. On a GPU our fused step comes first unless a fused one is named. Ratios are against the
first. Each runs in a process of its own, on the GPU where there is one, else on the CPU. Losses and
gradients must agree before times are shown.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "compare",
        help="measure a training step against other lowerings and frameworks",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", choices=models.names(), metavar="NETWORK")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--resolution", type=int, help="square images of another size")
    parser.add_argument("--classes", type=int, help="default: 10 for small images, else 1000")
    parser.add_argument("--optimizer", default="nesterov")
    parser.add_argument("--fp32", action="store_true", help="fp32 instead of fp16 AMP")
    parser.add_argument("--against", default="xla,torch", help="names, separated by commas")
    parser.add_argument("--steps", type=int, default=20, help="steps of a timed repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, metavar="F", help="write the figures to a file")


def run(args: argparse.Namespace) -> int:
    """Compare and print; 1 if no contestant could run."""
    from renaissance.compare import Workload, compare, with_ours

    height, width, channels = models.default_input_shape(args.network)
    if args.resolution:
        height = width = args.resolution
    workload = Workload(
        net=args.network,
        batch=args.batch,
        height=height,
        width=width,
        channels=channels,
        classes=args.classes or (1000 if height > 64 else 10),
        optimizer=args.optimizer,
        amp=not args.fp32,
        steps=args.steps,
        repeats=args.repeats,
    )
    names = [name.strip() for name in args.against.split(",") if name.strip()]
    comparison = compare(workload, with_ours(names))
    print(comparison.table())
    if args.csv:
        comparison.write_csv(args.csv)
    return 0 if any(not r.failure for r in comparison.results) else 1
