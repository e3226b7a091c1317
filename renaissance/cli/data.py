"""``renaissance data``: look at data sets, check, convert and fetch them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from renaissance import data
from renaissance.cli.data_convert import SPLITS, convert, open_any, open_splits
from renaissance.cli.data_recipes import RECIPES, Recipe, parse_transforms
from renaissance.core.errors import FormatError
from renaissance.data import native
from renaissance.data.catalog import ENTRIES
from renaissance.data.download import ORIGINS, fetch
from renaissance.data.dts import read_dts_header
from renaissance.data.dts_blocks import DtsBlocks
from renaissance.data.preparation import Dataset
from renaissance.data.sheet import contact_sheet, write_png

FORMATS = ("auto", *ENTRIES, "dts")


def add_parser(subparsers: Any) -> None:
    """Add the command and its own commands."""
    parser = subparsers.add_parser("data", help="inspect, verify and convert data sets")
    commands = parser.add_subparsers(dest="data_command", metavar="COMMAND", required=True)

    info = commands.add_parser("info", help="what is in a file or directory")
    add_source(info)

    verify = commands.add_parser("verify", help="read everything, compare checksums")
    add_source(verify)

    change = commands.add_parser("convert", help="from raw formats to DTS and back")
    add_source(change)
    change.add_argument("target", type=Path, help="directory for train.* and val.*")
    change.add_argument("--to", choices=("dts", "raw"), default="dts", help="raw: IDX, CIFAR, ...")
    change.add_argument(
        "--level", type=int, choices=range(4), default=0, help="0: original bytes; 3: smallest"
    )
    change.add_argument(
        "--decode", action="store_true", help="store pixels instead of JPEGs (pictures of one size)"
    )

    bench = commands.add_parser("bench", help="samples per second through a recipe's transforms")
    add_source(bench)
    add_recipe(bench)
    bench.add_argument("--batch", type=int, default=200, help="samples per batch (200)")
    bench.add_argument("--workers", type=int, nargs="+", default=[0], help="0: one per processor")
    bench.add_argument("--seconds", type=float, default=3.0, help="per measurement (3)")
    bench.add_argument("--fp16", action="store_true", help="float16 images of 4 channels")

    show = commands.add_parser("show", help="a picture of augmented samples")
    add_source(show)
    show.add_argument("picture", type=Path, help="the PNG to write")
    add_recipe(show)
    show.add_argument("--samples", type=int, default=8, help="rows: samples (8)")
    show.add_argument("--epochs", type=int, default=12, help="columns: epochs (12)")
    show.add_argument("--seed", type=int, default=0)

    download = commands.add_parser("download", help="fetch a data set")
    download.add_argument("name", choices=sorted(ORIGINS))
    download.add_argument("directory", type=Path)
    download.add_argument("--mirror", action="append", default=[], help="address to try first")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a data set."""
    parser.add_argument("source", type=Path, help="file or directory")
    parser.add_argument("--format", choices=FORMATS, default="auto", help="how to read it")
    parser.add_argument("--split", choices=("both", *SPLITS), default="both")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=3, help="of JPEGs (3)")


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Arguments that name transforms."""
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="none")
    parser.add_argument(
        "--transforms", metavar="TEXT", help="such as 'Pad(4) RandomCrop(32)', after the recipe's"
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen command."""
    return COMMANDS[args.data_command](args)


def run_info(args: argparse.Namespace) -> int:
    """Print what a data set holds."""
    if args.source.is_file() and args.source.suffix == ".dts":
        header = read_dts_header(args.source)
        for name in header.__dataclass_fields__:
            print(f"  {name:18} {getattr(header, name)}")
    for split, dataset in open_splits(args):
        counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
        print(f"{split}: {dataset}")
        print(
            f"  samples per class: {counts.min()} to {counts.max()}, {(counts > 0).sum()} classes"
        )
        if isinstance(dataset, data.ArrayDataset) and len(dataset):
            mean, std = (f(dataset.images / np.float32(255), (0, 1, 2)) for f in (np.mean, np.std))
            print(f"  mean {np.round(mean, 4).tolist()}, std {np.round(std, 4).tolist()}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Read everything; the first fault ends it with an error."""
    for split, dataset in open_splits(args):
        damaged = 0
        if isinstance(dataset, DtsBlocks):
            dataset.verify()
        if not isinstance(dataset, data.ArrayDataset):
            for index in range(len(dataset)):
                try:
                    dataset.decode(index)
                except FormatError as error:
                    print(error, file=sys.stderr)
                    damaged += 1
        if damaged:
            raise FormatError(f"{split}: {damaged} of {len(dataset)} samples are damaged")
        print(f"{split}: {len(dataset)} samples are sound")
    return 0


def run_convert(args: argparse.Namespace) -> int:
    """Write a data set in another format."""
    for split, dataset in open_splits(args):
        for path in convert(dataset, args, split):
            print(f"{split}: {len(dataset)} samples to {path}, {path.stat().st_size:,} bytes")
    return 0


def chosen_recipe(args: argparse.Namespace) -> Recipe:
    """The recipe, with the transforms given beside it."""
    recipe = RECIPES[args.recipe]
    more = parse_transforms(args.transforms) if args.transforms else ()
    return Recipe((*recipe.transforms, *more), recipe.normalization)


def run_bench(args: argparse.Namespace) -> int:
    """Measure samples per second, for each number of workers."""
    dataset, recipe = first_split(args), chosen_recipe(args)
    batch = min(args.batch, len(dataset))
    engine = "native workers" if native.is_available() else f"by numpy: {native.problem()}"
    print(f"{dataset}, batches of {batch}, {len(native.processors())} processors, {engine}")
    for workers in args.workers:
        with data.loader(
            dataset,
            batch_size=batch,
            shuffle=True,
            transforms=recipe.transforms,
            normalization=recipe.normalization,
            workers=workers or None,
            dtype=np.float16 if args.fp16 else np.float32,
            channels=4 if args.fp16 else None,
        ) as batches:
            rate = measure(batches, args.seconds)
        name = f"{workers} workers" if workers else "one worker per processor"
        print(f"  {name}: {rate:,.0f} samples/s")
    return 0


def measure(batches: data.Loader, seconds: float) -> float:
    """Samples per second over whole batches, after a first one that does not count."""
    count, begin = 0, 0.0
    while True:
        for number, (_, labels) in enumerate(batches):
            now = time.perf_counter()
            if not begin:
                begin = now if number == 0 else begin
                continue
            count += len(labels)
            if now - begin > seconds:
                return count / (now - begin)


def run_show(args: argparse.Namespace) -> int:
    """Write a contact sheet: one sample a row, one epoch a column."""
    dataset, recipe = first_split(args), chosen_recipe(args)
    sheet = contact_sheet(
        dataset, recipe.transforms, samples=args.samples, epochs=args.epochs, seed=args.seed
    )
    write_png(args.picture, sheet)
    print(f"{args.picture}: {args.samples} samples x {args.epochs} epochs of {dataset.name}")
    return 0


def first_split(args: argparse.Namespace) -> Dataset:
    """The split asked for; the training split of both."""
    return open_any(args, "train" if args.split == "both" else args.split)


def run_download(args: argparse.Namespace) -> int:
    """Fetch a data set, with a line per file."""

    def progress(name: str, have: int, total: int) -> None:
        if sys.stderr.isatty():
            share = f"{100 * have / total:.0f} %" if total else f"{have:,} bytes"
            print(f"\r{name}: {share}", end="", file=sys.stderr)

    for path in fetch(args.name, args.directory, mirrors=args.mirror, progress=progress):
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


COMMANDS = {
    "info": run_info,
    "verify": run_verify,
    "convert": run_convert,
    "bench": run_bench,
    "show": run_show,
    "download": run_download,
}
