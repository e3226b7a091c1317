"""``renaissance kernels``: compile every device kernel for an architecture, without a device."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from renaissance.core.types import Variant
from renaissance.data.chain import lower_chain
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import inference_pass, train_pass
from renaissance.lowering.launches.planned import PlannedLaunch
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.rewrites.persistent import persistent_call, reasons_against
from renaissance.runtime.compile_cache import CompileCache
from renaissance.runtime.kernels import CompiledKernel, KernelCompiler

DEFAULT_ARCHITECTURE = "sm_90a"

_DESCRIPTION = """\
Compile every CUDA kernel with NVRTC, as it is specialised for representative networks, and print
what each takes. Needs NVRTC (a wheel that jax[cuda13] or jax[cuda12] brings), no GPU.

  renaissance kernels --arch sm_90a
  renaissance kernels --arch sm_80 --arch sm_89 --fresh
"""


def add_parser(subparsers: Any) -> None:
    """Add ``kernels`` and its arguments."""
    parser = subparsers.add_parser(
        "kernels",
        help="compile the device kernels, without a device",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--arch",
        action="append",
        metavar="SM",
        help=f"architecture, sm_80 or later; may be repeated (default {DEFAULT_ARCHITECTURE})",
    )
    parser.add_argument("--fresh", action="store_true", help="compile even what is in the cache")


def run(options: argparse.Namespace) -> int:
    """Compile and print; 0 when all kernels compile.

    Raises:
        NativeError: there is no NVRTC, or a kernel does not compile; the message holds its log.
        ValueError: an architecture is not one.
    """
    planned = list(representative_launches())
    with tempfile.TemporaryDirectory() as empty:
        cache = CompileCache(Path(empty)) if options.fresh else CompileCache()
        for architecture in options.arch or [DEFAULT_ARCHITECTURE]:
            compiler = KernelCompiler(architecture, cache)
            version = "{}.{}".format(*compiler.compiler.version)
            fitting = [p for p in planned if p.kernel.architecture in ("", architecture)]
            print(f"{architecture}, NVRTC {version}: {len(fitting)} kernels")
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = list(pool.map(compiler.compile, [p.kernel for p in fitting]))
            for line in table(fitting, compiled):
                print(line)
    return 0


def representative_launches() -> Iterator[PlannedLaunch]:
    """Every kernel of the fused lowering, at least once in each of its forms."""
    seen = set()
    for program, simplified in representative_programs():
        recipe = program.backend.recipe
        train = train_pass(program.graph, Scene(program.memory, recipe), simplified=simplified)
        validation = Scene(program.graph.memory[Variant.VAL_BASE], recipe)
        infer = inference_pass(program.graph, validation, ema=recipe.ema is not None)
        scene = Scene(program.memory, recipe)
        many: list[InPlaceCall] = []
        if simplified and not reasons_against(scene, train.calls):
            many.append(persistent_call(scene, train.calls, 100, "float32", indexed=False))
        for call in (*train.calls, *infer.calls, *many):
            if not call.target.cuda:
                continue
            for launch in launches_of(call):
                if launch.kernel not in seen:
                    seen.add(launch.kernel)
                    yield launch
    for call in _calls_that_make_batches():
        yield from launches_of(call)


def _calls_that_make_batches() -> Iterator[InPlaceCall]:
    """With the transforms of MNIST's and CIFAR's recipes, and two warps on larger pictures."""
    import renaissance.data as data

    erasing = data.RandomErasing(0.5)
    warps = (data.RandomRotation(20), data.RandomScale(0.8, 1.2))
    crop = (data.Pad(4, "reflect"), data.RandomCrop(32), data.RandomHorizontalFlip())
    chains: list[tuple[tuple[int, int, int], int, int, tuple[Any, ...]]] = [
        ((28, 28, 1), 1, 1, (data.Pad(2), data.RandomCrop(28), *warps, erasing)),
        ((32, 32, 3), 4, 1, (*crop, erasing)),
        ((112, 112, 3), 3, 0, (*warps, data.Pad(1, "symmetric"), data.CenterCrop(96))),
    ]
    for shape, channels, half, transforms in chains:
        chain = np.array(lower_chain(transforms, shape).records(), np.int64)
        sizes = {"rows": 256, "padded_channels": channels, "type": half, "chain": chain}
        yield InPlaceCall(targets.AUGMENT_BATCH, (), sizes)


def representative_programs() -> Iterator[tuple[Any, bool]]:
    """Programs, and whether their step is merged into few launches.

    An MLP of the contract; one of odd widths with every activation and many classes; a small one
    for every optimizer; one of maps; the stem of a residual network.
    """
    import renaissance as rn

    hidden = [part for width in (1024, 512, 256) for part in (rn.fc(width), rn.relu())]
    plain = rn.seq(rn.flatten(), *hidden, rn.fc(10))
    activations = (
        rn.relu(), rn.relu6(), rn.leaky_relu(), rn.silu(), rn.hardswish(), rn.elu(), rn.sigmoid(),
        rn.tanh_act(),
    )  # fmt: skip
    layers = [part for i, act in enumerate(activations) for part in (rn.fc(33 + i), act)]
    odd = rn.seq(rn.flatten(), *layers, rn.dropout(0.5), rn.fc(1000))
    residual = rn.add2(rn.identity(), rn.seq(rn.conv_dw(3, 1, 1), rn.bn()))
    maps = rn.seq(
        rn.conv_dw(3, 1, 1), rn.bn(), rn.relu6(), rn.maxpool(3, 2, 1), residual, rn.relu(),
        rn.channel_padding(), rn.conv_dw(3, 2, 1), rn.avgpool(2, 2, 0), rn.gap(), rn.fc(10),
    )  # fmt: skip
    stem = rn.seq(rn.conv(64, 7, 2, 3), rn.bn(), rn.relu(), rn.gap(), rn.fc(10))
    small = rn.seq(rn.flatten(), rn.fc(16), rn.relu(), rn.fc(10))
    optimizers: list[Any] = [
        rn.SGD(),
        rn.SGD(0.9),
        rn.SGD(0.9, nesterov=True),
        rn.Adam(),
        rn.AdamW(),
    ]
    for amp in (True, False):
        options: dict[str, Any] = {"amp": amp, "lowering": "xla"}
        yield rn.compile(plain, (28, 28, 1), 200, optimizer=rn.AdamW(), **options), True
        yield (
            rn.compile(
                odd,
                (5, 5, 3),
                1000,
                optimizer=rn.LARS(),
                ema=0.99,
                grad_clip=rn.ClipByGlobalNorm(1.0),
                **options,
            ),
            True,
        )
        yield rn.compile(maps, (16, 16, 3), 32, optimizer=rn.SGD(0.9), **options), True
        yield rn.compile(stem, (32, 32, 3), 32, optimizer=rn.SGD(0.9), **options), True
        for optimizer in optimizers:
            yield rn.compile(small, (4, 4, 1), 64, optimizer=optimizer, ema=0.9, **options), False

        for convolutional, shape in _convolutional_networks(rn):
            program = rn.compile(convolutional, shape, 256, num_classes=1000, **options)
            yield program, False
            yield program, True


def _convolutional_networks(rn: Any) -> Iterator[tuple[Any, tuple[int, int, int]]]:
    """Their kernels on maps; a dense convolution has none."""
    stem = rn.cbrp(64, 7, 2, 3, 3, 2, 1)
    residual = (rn.block(64, 256, rn.RESNET_1_3_1), rn.block(128, 512, rn.RESNET_1_3_1_DS))
    yield rn.seq(stem, *residual, rn.gap(), rn.fc(1000)), (224, 224, 3)
    first = (rn.conv(32, 3, 2, 1), rn.bn(), rn.relu6())
    blocks = (rn.mbconv(1, 16, 1), rn.mbconv(6, 24, 2), rn.mbconv(6, 24, 1))
    yield rn.seq(*first, *blocks, rn.gap(), rn.dropout(0.2), rn.fc(1000)), (64, 64, 3)
    maps = (rn.channel_padding(), rn.conv(64, 3, 1, 1), rn.bn(), rn.silu(), rn.maxpool(2, 2, 0))
    add = rn.add2(rn.conv(96, 1), rn.conv(96, 3, 1, 1))
    yield rn.seq(*maps, rn.avgpool(2, 2, 0), add, rn.relu(), rn.gap(), rn.fc(1000)), (32, 32, 3)


def table(planned: list[PlannedLaunch], compiled: list[CompiledKernel]) -> Iterator[str]:
    """A line for each kernel: its constants and what it takes."""
    yield f"{'kernel':30s} {'registers':>9s} {'shared':>8s} {'stack':>6s} {'spills':>6s}  constants"
    for launch, kernel in sorted(zip(planned, compiled, strict=True), key=_order):
        constants = " ".join(
            f"{name.removeprefix('RN_').lower()}={value}" for name, value in kernel.kernel.constants
        )
        r = kernel.resources
        numbers = (
            f"{'-':>9s} {launch.shared_bytes:8,d} {'-':>6s} {'-':>6s}"
            if r is None
            else f"{r.registers:9d} {r.shared_bytes + launch.shared_bytes:8,d} "
            f"{r.stack_bytes:6d} {r.spill_bytes:6d}"
        )
        yield f"{kernel.kernel.name:30s} {numbers}  {constants}".rstrip()


def _order(pair: tuple[PlannedLaunch, CompiledKernel]) -> tuple[Any, ...]:
    return pair[1].kernel.name, pair[1].kernel.constants
