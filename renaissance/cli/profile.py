"""``renaissance profile``: where the time of a network's train step goes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from renaissance import models

_DESCRIPTION = """\
Take a train step apart: time, bytes, rates and distance from what the device could do, for every
sub-graph and every custom call of the fused lowering, the worst loss first.

  renaissance profile mlp --batch 200 --amp --optimizer adamw
  renaissance profile resnet50 --batch 256 --amp --csv calls.csv

The device's rates are measured in the same run. Without a GPU it measures the CPU, and says so.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "profile",
        help="say where the time of a train step goes",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", choices=models.names(), metavar="NETWORK")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--amp", action="store_true", help="mixed precision (fp16 and fp32)")
    parser.add_argument("--resolution", type=int, help="square images of another size")
    parser.add_argument("--classes", type=int, help="default: 10 for small images, else 1000")
    parser.add_argument("--optimizer", default="nesterov")
    parser.add_argument("--lowering", choices=("fused", "xla"), default="fused")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=int, metavar="N", help="show only the N worst calls")
    parser.add_argument("--csv", type=Path, metavar="F", help="write the calls to a file")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    import renaissance as rn
    from renaissance.compare import Workload

    height, width, channels = models.default_input_shape(args.network)
    if args.resolution:
        height = width = args.resolution
    classes = args.classes or (1000 if height > 64 else 10)
    workload = Workload(
        args.network, args.batch, height, width, channels, classes, args.optimizer, args.amp
    )
    program = rn.compile(workload.blueprint(), **workload.compile_options(), lowering=args.lowering)
    found = program.profile(repeats=args.repeats)
    print(found.table(args.most))
    if args.csv:
        found.write_csv(args.csv)
    return 0
