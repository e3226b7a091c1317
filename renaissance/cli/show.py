"""``renaissance show``: what the compiler decides about a network, without a device."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from renaissance import models
from renaissance.cli.recipes import OPTIMIZERS, make_optimizer
from renaissance.graph.blueprint import BluePrint
from renaissance.graph.compiler import CompiledGraph, compile_graph
from renaissance.graph.options import CompileOptions
from renaissance.graph.report import report, write_pictures

_DESCRIPTION = """\
Print a network's architecture, memory map and graphs, as the compiler decides them.

  renaissance show resnet50 --batch 256 --optimizer momentum --amp
  renaissance show resnet18 --batch 128 --amp --svg pictures
        also writes memory.svg, lifetimes.svg, step.svg and graph.svg
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "show",
        help="print a network's plan, memory map and graphs",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = models.names()
    parser.add_argument("network", choices=names, metavar="NETWORK", help=", ".join(names))
    _add_shapes(parser.add_argument_group("shapes"))
    _add_training(parser.add_argument_group("training"))
    _add_output(parser.add_argument_group("output"))


def _add_shapes(group: Any) -> None:
    group.add_argument("--batch", type=int, default=256, help="rows of a batch (256)")
    group.add_argument("--last-batch", type=int, help="rows of the last training batch")
    group.add_argument("--val-batch", type=int, help="rows of a validation batch")
    group.add_argument("--last-val-batch", type=int, help="rows of the last validation batch")
    group.add_argument("--size", type=int, help="height and width training starts with")
    group.add_argument("--end-size", type=int, help="height and width training ends with")
    group.add_argument("--val-size", type=int, help="height and width of validation")
    group.add_argument("--classes", type=int, help="number of classes")
    group.add_argument("--stem", choices=("imagenet", "cifar"), help="first layers of a resnet")


def _add_training(group: Any) -> None:
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="(sgd)")
    group.add_argument("--amp", action="store_true", help="fp16 features and compute weights")
    group.add_argument("--no-fuse", action="store_true", help="primitives only, also under AMP")
    group.add_argument("--ema", action="store_true", help="keep a moving average of the weights")
    group.add_argument("--freeze-first", action="store_true", help="do not train the first layer")


def _add_output(group: Any) -> None:
    group.add_argument("--nodes", action="store_true", help="list every node of every graph")
    group.add_argument("--layout", action="store_true", help="list every tensor with its offset")
    group.add_argument("--svg", type=Path, metavar="DIR", help="write pictures into a folder")


def run(arguments: argparse.Namespace) -> int:
    """Compile, print, draw."""
    result = compile_network(arguments)
    print(report(result, nodes=arguments.nodes, layout=arguments.layout))
    if arguments.svg is not None:
        print()
        for path in write_pictures(result, arguments.network, arguments.svg):
            print(f"wrote {path}")
    return 0


def compile_network(arguments: argparse.Namespace) -> CompiledGraph:
    """The network and options that the arguments ask for, compiled."""
    height, width, channels = models.default_input_shape(
        arguments.network, arguments.stem or "imagenet"
    )
    slots = make_optimizer(arguments.optimizer, 0.0).slots
    options = CompileOptions(
        input_channels=channels,
        batch=arguments.batch,
        train_begin=_square(arguments.size) or (height, width),
        train_end=_square(arguments.end_size),
        validation=_square(arguments.val_size),
        last_train_batch=arguments.last_batch,
        val_batch=arguments.val_batch,
        last_val_batch=arguments.last_val_batch,
        amp=arguments.amp,
        fuse=False if arguments.no_fuse else None,
        first_moment=slots.first_moment,
        second_moment=slots.second_moment,
        norms=slots.norms,
        ema=arguments.ema,
        first_layer_frozen=arguments.freeze_first,
    )
    return compile_graph(_blueprint(arguments), options)


def _blueprint(arguments: argparse.Namespace) -> BluePrint:
    chosen = {"num_classes": arguments.classes, "stem": arguments.stem}
    given = {name: value for name, value in chosen.items() if value is not None}
    return models.by_name(arguments.network, **given)


def _square(size: int | None) -> tuple[int, int] | None:
    return None if size is None else (size, size)
