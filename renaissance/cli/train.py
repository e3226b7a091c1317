"""``renaissance train``: a whole training from the command line."""

from __future__ import annotations

import argparse
from typing import Any

from renaissance import models
from renaissance.cli.recipes import (
    OPTIMIZERS,
    SCHEDULERS,
    TrainingRecipe,
    make_optimizer,
    make_scheduler,
    recipe_of,
)
from renaissance.core.errors import fail
from renaissance.core.settings import Settings
from renaissance.graph.blueprint import BluePrint

NETWORKS = ("digits", *models.names())
STEMS = ("auto", "cifar", "imagenet")
FORMATS = ("auto", "mnist", "cifar10", "cifar100", "folder", "dts")
INFO = ("arch", "memory", "train", "infer")

_DESCRIPTION = """\
Train a network and report its best top-1.

  renaissance train digits --epochs 30 --seed 3
        an MLP on the handwritten digits that ship with the package: no download, no GPU
  renaissance train mlp --data DIR --epochs 5
        an MLP on MNIST-like IDX files, gzipped or not
  renaissance train resnet18 --data DIR --amp
        a residual network in mixed precision

Ctrl-C finishes the step in progress, keeps what was measured and exits with 130.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "train",
        help="train a network and report its best top-1",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "network",
        choices=NETWORKS,
        metavar="NETWORK",
        help=f"{', '.join(NETWORKS)}; digits brings its own data",
    )
    _add_data(parser.add_argument_group("data"))
    _add_recipe(parser.add_argument_group("recipe (each has a default that suits the network)"))
    _add_machine(parser.add_argument_group("machine"))
    _add_output(parser.add_argument_group("output"))


def _add_data(group: Any) -> None:
    group.add_argument("--data", metavar="DIR", help="directory with the data set, or a tar of it")
    group.add_argument("--format", choices=FORMATS, default="auto", help="default: by its files")
    group.add_argument("--resolution", type=int, metavar="N", help="side of the pictures, pixels")
    group.add_argument(
        "--augment",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="distort the training pictures at random; default: only for convolutional networks",
    )
    group.add_argument("--stem", choices=STEMS, default="auto", help="of residual networks")
    group.add_argument("--workers", type=int, metavar="N", help="threads; default: one per core")


def _add_recipe(group: Any) -> None:
    group.add_argument("--epochs", type=int, metavar="N")
    group.add_argument("--batch", type=int, metavar="N", help="samples of a training step")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    group.add_argument("--optimizer", choices=OPTIMIZERS)
    group.add_argument("--weight-decay", type=float, metavar="X")
    group.add_argument("--lr", type=float, metavar="X", help="rate after the warm-up")
    group.add_argument("--scheduler", choices=SCHEDULERS)
    group.add_argument("--warmup", type=float, metavar="EPOCHS")
    group.add_argument("--smoothing", type=float, metavar="X", help="label smoothing, 0 to 1")
    group.add_argument("--grad-clip", type=float, metavar="X", help="largest gradient element")
    group.add_argument("--ema", type=float, metavar="DECAY", help="keep averaged weights too")
    group.add_argument("--sema", action="store_true", help="switch to them every epoch")
    group.add_argument("--freeze-first-layer-after", type=int, metavar="EPOCH")
    group.add_argument("--tta", choices=("disabled", "lr", "shift_1px"), default="disabled")
    group.add_argument("--validate-every", type=int, default=1, metavar="EPOCHS")
    group.add_argument("--target", type=float, metavar="X", help="stop at this top-1, such as 0.98")


def _add_machine(group: Any) -> None:
    device = group.add_mutually_exclusive_group()
    device.add_argument("--cpu", action="store_true", help="run on the CPU")
    device.add_argument("--gpu", type=int, metavar="ID", help="run on this GPU")
    group.add_argument("--amp", action="store_true", help="mixed precision (fp16 and fp32)")
    group.add_argument("--tf32", action="store_true", help="allow TF32 in fp32 products")
    group.add_argument("--lowering", choices=("auto", "xla", "fused"), default="auto")
    group.add_argument(
        "--pipeline",
        choices=("auto", "host", "device"),
        default="auto",
        help="where batches are made; default: on a GPU that has room for the data, else here",
    )


def _add_output(group: Any) -> None:
    group.add_argument("--name", help="of the run's directory; default: the network")
    group.add_argument("--runs", default="runs", metavar="DIR", help="default runs")
    group.add_argument("--no-files", action="store_true", help="leave no run directory")
    group.add_argument("--save-best", action="store_true", help="keep the best weights")
    group.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    group.add_argument(
        "--info", nargs="*", choices=INFO, default=["arch"], help="plans printed; default arch"
    )
    group.add_argument("--dry-run", action="store_true", help="compile, run blank steps, stop")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    """Train as the options say; raises what the task raises."""
    from renaissance.task import CompileInfo  # brings jax

    task = make_task(options)
    info = CompileInfo.NONE
    names = dict(zip(INFO, CompileInfo.ALL, strict=True))
    for name in options.info:
        info |= names[name]
    task.compile(CompileInfo.NONE if options.quiet else info)
    if options.dry_run:
        task.dry_run()
    else:
        task.run()
    return 0


def make_task(options: argparse.Namespace) -> Any:
    """The configured task."""
    from renaissance.cli.datasets import open_data
    from renaissance.task import TTA, DeepLearningTask

    recipe = recipe_of(options.network)
    epochs = _chosen(options.epochs, recipe.epochs)
    data = open_data(options, _chosen(options.batch, recipe.batch))
    task = DeepLearningTask(
        options.name or options.network,
        _settings(options),
        runs=None if options.no_files else options.runs,
        quiet=options.quiet,
    )
    task.data(data.train, data.val)
    task.model(make_model(options, data.train.image_shape, data.train.dataset.num_classes))
    _configure(task, options, recipe, epochs)
    task.tta(TTA(options.tta)).validate_every(options.validate_every)
    return task.lowering(options.lowering).pipeline(options.pipeline)


def make_model(
    options: argparse.Namespace, image_shape: tuple[int, int, int], classes: int
) -> BluePrint:
    """The network for pictures of this size and this many classes."""
    if options.network == "digits":
        return models.mlp(num_classes=classes, hidden=(256, 128))
    if not options.network.startswith("resnet"):
        if options.stem != "auto":
            fail(ValueError, "--stem", options.stem, "a residual network to go with it")
        return models.by_name(options.network, num_classes=classes)
    small = max(image_shape[:2]) <= 64
    stem = options.stem if options.stem != "auto" else "cifar" if small else "imagenet"
    return models.by_name(options.network, num_classes=classes, stem=stem)


def _settings(options: argparse.Namespace) -> Settings:
    settings = Settings().manual_seed(options.seed).amp(options.amp).use_tf32(options.tf32)
    if options.cpu:
        settings.use_cpu()
    if options.gpu is not None:
        settings.use_gpu(options.gpu)
    return settings


def _configure(task: Any, options: argparse.Namespace, recipe: TrainingRecipe, epochs: int) -> None:
    from renaissance.algo.loss import CrossEntropy

    weight_decay = _chosen(options.weight_decay, recipe.weight_decay)
    task.total_epochs(epochs)
    task.loss(CrossEntropy(_chosen(options.smoothing, recipe.smoothing)))
    task.optimizer(make_optimizer(_chosen(options.optimizer, recipe.optimizer), weight_decay))
    warmup = _chosen(options.warmup, min(recipe.warmup, epochs / 5))
    scheduler = _chosen(options.scheduler, recipe.scheduler)
    task.scheduler(make_scheduler(scheduler, _chosen(options.lr, recipe.lr), warmup))
    if options.grad_clip is not None:
        task.grad_clip(options.grad_clip)
    if options.ema is not None:
        task.sema_decay(options.ema)
    if options.sema:
        task.use_sema()
    if options.freeze_first_layer_after is not None:
        task.freeze_first_layer_after(options.freeze_first_layer_after)
    if options.target is not None:
        task.early_stop_by_top1(options.target)
    if options.save_best:
        task.save_best_model()
    if options.resume is not None:
        task.resume(options.resume)


def _chosen(value: Any, default: Any) -> Any:
    return default if value is None else value
