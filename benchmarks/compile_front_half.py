"""How long the front half takes: from a blueprint to memory plans, graphs and the atlas.

Two questions: does ResNet-50, six different variants, stay under half a second; and does the time
grow linearly with the number of layers? Times are CPU times: the front half is one thread, so on a
free core they are the time one waits.

    python benchmarks/compile_front_half.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from time import process_time

from renaissance.core.types import Variant
from renaissance.graph.blueprint import (
    BluePrint,
    bn,
    cbr,
    conv,
    fc,
    gap,
    identity,
    relu,
    repeat,
    seq,
)
from renaissance.graph.blueprint import add2 as add
from renaissance.graph.compiler import CompiledGraph, compile_graph
from renaissance.graph.options import CompileOptions
from renaissance.models import by_name, default_input_shape, names

REPEATS = 7
LIMIT_SECONDS = 0.5


def six_variants(shape: tuple[int, int, int], *, flat: bool = False) -> CompileOptions:
    """Options under which all six variants have a shape of their own, where the network can."""
    height, width, channels = shape
    smaller = (height, width) if flat else (height * 3 // 4, width * 3 // 4)
    larger = (height, width) if flat else (height * 9 // 8, width * 9 // 8)
    return CompileOptions(
        input_channels=channels,
        batch=256,
        train_begin=smaller,
        train_end=(height, width),
        validation=larger,
        last_train_batch=112,
        val_batch=250,
        last_val_batch=50,
        amp=True,
        first_moment=True,
        ema=True,
        lr_table_length=450_000,
    )


def front_half(network: BluePrint, options: CompileOptions) -> CompiledGraph:
    """Everything the compiler does, every descriptor of every variant made."""
    result = compile_graph(network, options)
    for plan in result.memory:
        assert plan.tensors
    return result


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """(median, fastest) of several runs."""
    times = []
    for _ in range(repeats):
        begin = process_time()
        work()
        times.append(process_time() - begin)
    return statistics.median(times), min(times)


def models() -> None:
    """Every model, six variants."""
    print(f"{'network':<14}{'median':>10}{'fastest':>10}{'nodes':>8}{'tensors':>9}")
    for name in names():
        flat = name in ("mlp", "lenet", "vgg16_bn")
        options = six_variants(default_input_shape(name), flat=flat)
        network = by_name(name)
        result = front_half(network, options)
        nodes = sum(len(graph) for graph in result.graph)
        tensors = len(result.memory[Variant.TRAIN_BASE].layout.slots)
        median, fastest = seconds(partial(front_half, network, options))
        verdict = ""
        if name == "resnet50":
            verdict = f"  {'under' if median < LIMIT_SECONDS else 'ABOVE'} {LIMIT_SECONDS} s"
        print(f"{name:<14}{median:>9.3f}s{fastest:>9.3f}s{nodes:>8}{tensors:>9}{verdict}")


def growth() -> None:
    """A network twice as deep should take twice as long."""
    print(f"\n{'blocks':>8}{'layers':>8}{'fastest':>10}{'per layer':>12}")
    block = add(identity(), seq(cbr(16, 3, 1, 1), conv(16, 3, 1, 1), bn()))
    for blocks in (25, 50, 100, 200, 400, 800):
        body = repeat(seq(block, relu()), blocks)
        network = BluePrint(seq(cbr(16, 3, 1, 1), body, gap(), fc(10)))
        options = six_variants((32, 32, 3))
        layers = len(front_half(network, options).plan.primitives())
        _, fastest = seconds(partial(front_half, network, options), repeats=3)
        print(f"{blocks:>8}{layers:>8}{fastest:>9.3f}s{1e6 * fastest / layers:>10.1f}us")


if __name__ == "__main__":
    models()
    growth()
