"""Measures the kernels that work on maps: bytes a second against a copy of the same run.

    python benchmarks/memory_kernels.py [--batch 256] [--only PATTERN] [--variants] [--json FILE]

Every kernel runs in place on random halves, in an executable of many calls and in one of few. A
number is the difference of their times over the difference in calls: starting an executable and
waiting for its end, some 200 us, are not in it. Each is run twice from the same memory first and
must give the same bits. Bytes are what the operation must move: each operand once a pass.
Correctness is what ``tests/lowering/calls/test_native_{conv,norm,pool}.py`` check, on whatever
device they run on. With ``--variants``, depthwise kernels are measured in several shapes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.fused.convolutions import depthwise_pieces
from renaissance.lowering.fused.norms import partial_rows
from renaissance.lowering.launches import depthwise as depthwise_launches
from renaissance.lowering.launches.depthwise import DepthwiseShape
from renaissance.lowering.launches.table import launches_of
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

CALLS, FEW_CALLS = 24, 4
HALF = 1
RELU, RELU6 = 1, 2
WORKSPACE = 32 << 20


@dataclass
class Case:
    """One operation: byte sizes of its operands (0 for one left out), and what it must move."""

    name: str
    target: Target
    sizes: list[int]
    moved: int
    attributes: dict[str, Any] = field(default_factory=dict)

    def call(self) -> tuple[InPlaceCall, int]:
        """The call on a bank of its own, and the bank's bytes."""
        places: list[Location | None] = []
        end = 0
        for size in self.sizes:
            if size == 0:
                places.append(None)
                continue
            places.append(Location(Bank.SCRATCH, end, size, self.name))
            end += -(-size // 256) * 256
        return InPlaceCall(self.target, tuple(places), self.attributes, self.name), end


def norm_cases(n: int, side: int, c: int) -> Iterator[Case]:
    """Batch norm's passes over a map."""
    rows = n * side * side
    m, v, pieces = rows * c * 2, c * 4, partial_rows(rows, c)
    bits = m // 16
    place = f"{c}x{side}x{side}"
    base = {"rows": rows, "c": c, "type": HALF}
    norm, none = [v] * 4, [0] * 4
    partial = pieces * 4 * c * 4
    constants = {"momentum": 0.1, "eps": 1e-5, "partial_rows": pieces}
    sizes = [m, *[v] * 6, partial]
    target = targets.BATCH_NORM_STATISTICS
    yield Case(f"statistics {place}", target, sizes, m, {**base, **constants})
    relu = {**base, "activation": RELU}
    apply, backward = targets.BATCH_NORM_APPLY, targets.BATCH_NORM_BACKWARD
    yield Case(f"apply relu {place}", apply, [m, *norm, 0, *none, m, 0, 0], 2 * m, relu)
    yield Case(
        f"apply add relu {place}", apply, [m, *norm, m, *none, m, 0, bits], 3 * m + bits, relu
    )
    two = [m, *norm, m, *norm, m, 0, bits]
    yield Case(f"apply two norms add relu {place}", apply, two, 3 * m + bits, relu)
    pool = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad", "argmax_bytes"), 0)
    relu |= {**pool, "partial_rows": pieces}
    head = [m, 0, 0, m, *norm]
    sizes = [*head, 0, *none, m, v, v, 0, 0, 0, partial, 0, 0]
    yield Case(f"backward relu {place}", backward, sizes, 5 * m, relu)
    sizes = [*head, 0, *none, m, v, v, m, 0, 0, partial, 0, bits]
    yield Case(f"backward add relu {place}", backward, sizes, 6 * m + bits, relu)
    sizes = [*sizes[:-2], m, bits]
    yield Case(f"backward two readers add relu {place}", backward, sizes, 7 * m + bits, relu)
    sizes = [*head, m, *norm, m, v, v, m, v, v, partial, 0, bits]
    moved = 8 * m + 2 * bits
    yield Case(f"backward two norms relu {place}", backward, sizes, moved, relu)
    affine = {**base, "activation": RELU}
    yield Case(f"affine relu {place}", targets.AFFINE_FORWARD, [m, v, v, 0, m], 2 * m, affine)
    add = {"count": rows * c, "type": HALF, "activation": 0}
    yield Case(f"add {place}", targets.ADD_FORWARD, [m, m, m, 0], 3 * m, add)


def pool_cases(n: int) -> Iterator[Case]:
    """Pools of the contract's networks."""
    for side, c, kernel, stride, pad in ((112, 64, 3, 2, 1), (112, 128, 2, 2, 0)):
        out = (side + 2 * pad - kernel) // stride + 1
        shape = {"n": n, "h": side, "w": side, "c": c, "p": out, "q": out}
        shape |= {"kernel": kernel, "stride": stride, "pad": pad, "type": HALF}
        m, y = n * side * side * c * 2, n * out * out * c * 2
        v, winners, place = c * 4, y // 2, f"{c}x{side}x{side} {kernel}/{stride}"
        more = {**shape, "argmax_bytes": 1, "activation": 0}
        moved = m + y + winners
        forward, backward = targets.MAX_POOL_FORWARD, targets.MAX_POOL_BACKWARD
        yield Case(f"max-pool {place}", forward, [m, 0, 0, 0, 0, y, winners], moved, more)
        sizes = [m, *[v] * 4, y, winners]
        more |= {"activation": RELU}
        yield Case(f"norm relu max-pool {place}", forward, sizes, moved, more)
        given = {**shape, "argmax_bytes": 1}
        yield Case(f"max-pool backward {place}", backward, [y, winners, m], moved, given)
        pieces = partial_rows(n * side * side, c, pooled=True)
        sizes = [y, 0, winners, m, *[v] * 4, 0, 0, 0, 0, 0, m, v, v, 0, 0, 0, pieces * 2 * v, 0, 0]
        more |= {"rows": n * side * side, "partial_rows": pieces}
        moved = 3 * m + 2 * (y + winners)
        target = targets.BATCH_NORM_BACKWARD
        yield Case(f"norm relu max-pool backward {place}", target, sizes, moved, more)
        moved = m + y
        yield Case(f"avg-pool {place}", targets.AVERAGE_POOL_FORWARD, [m, y], moved, shape)
        target = targets.AVERAGE_POOL_BACKWARD
        yield Case(f"avg-pool backward {place}", target, [y, m], moved, shape)
    yield from global_cases(n)


def global_cases(n: int) -> Iterator[Case]:
    """Global pools, and the padding of the first layer's channels."""
    sizes = {"n": n, "pixels": 49, "c": 2048, "type": HALF}
    m, y = n * 49 * 2048 * 2, n * 2048 * 2
    both = {**sizes, "y_type": HALF}
    yield Case("global pool 2048x7x7", targets.GLOBAL_AVERAGE_POOL_FORWARD, [m, y], m + y, both)
    target = targets.GLOBAL_AVERAGE_POOL_BACKWARD
    yield Case("global pool backward 2048x7x7", target, [y, m], m + y, sizes)
    dy, w = n * 1000 * 2, 1000 * 2048 * 2
    given = {**sizes, "k": 1000}
    target = targets.GAP_FC_BACKWARD_DATA
    yield Case("gap-fc backward 2048x7x7", target, [dy, w, m], dy + w + m, given)
    pixels = n * 224 * 224
    channels = {"pixels": pixels, "x_channels": 3, "y_channels": 8, "type": HALF}
    sizes_ = [pixels * 6, pixels * 16]
    target = targets.CHANNEL_PADDING
    yield Case("channel padding 3 to 8, 224x224", target, sizes_, pixels * 22, channels)


def step_cases(n: int) -> Iterator[Case]:
    """What begins a step, and the loss that its forward pass ends in."""
    pixels = n * 224 * 224
    sizes = {"pixels": pixels, "channels": 3, "padded_channels": 4, "rows": n, "type": HALF}
    for name, number, width in (("fp16", HALF, 2), ("fp32", 0, 4)):
        places = [pixels * 3 * width, n * 4, 0, pixels * 8, n * 4]
        moved = pixels * (3 * width + 8)
        given = {**sizes, "from_type": number}
        yield Case(f"load batch 3 to 4, {name}", targets.LOAD_BATCH, places, moved, given)
    z, row = n * 1000 * 4, n * 4
    places = [z, row, 4, z // 2, row, 4, 4, 4, 4, 3 * row]
    given = {"n": n, "k": 1000, "smoothing": 0.1, "type": 0, "gradient_type": HALF}
    yield Case("loss of 1000 classes", targets.SOFTMAX_CROSS_ENTROPY, places, z * 3 // 2, given)


def depthwise_cases(n: int) -> Iterator[Case]:
    """Depthwise convolutions of MobileNetV2."""
    wide = ((32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2))
    layers = (*wide, (384, 14, 1), (576, 14, 1), (576, 14, 2), (960, 7, 1))
    for c, side, stride in layers:
        out = (side - 1) // stride + 1
        shape = {"n": n, "h": side, "w": side, "c": c, "k": c, "p": out, "q": out}
        shape |= {"r": 3, "s": 3, "stride": stride, "pad": 1, "groups": c, "type": HALF}
        x, y, w = n * side * side * c * 2, n * out * out * c * 2, c * 9 * 2
        place = f"{c}x{side}x{side}/{stride}"
        forward, data = targets.DEPTHWISE_CONV_FORWARD, targets.DEPTHWISE_CONV_BACKWARD_DATA
        yield Case(f"depthwise {place}", forward, [x, w, y], x + y, shape)
        yield Case(f"depthwise dgrad {place}", data, [y, w, x], x + y, shape)
        pieces = depthwise_pieces(shape, WORKSPACE)
        sizes = [x, y, w, pieces * c * 36 if pieces > 1 else 0]
        weight = {**shape, "partial_rows": pieces}
        target = targets.DEPTHWISE_CONV_BACKWARD_WEIGHT
        yield Case(f"depthwise wgrad {place}", target, sizes, x + y, weight)


def cases(n: int) -> Iterator[Case]:
    """All of them, a copy first."""
    size = n * 56 * 56 * 256 * 2
    yield Case("copy", targets.COPY, [size, size, 0], 2 * size, {"bytes": size})
    yield from norm_cases(n, 56, 256)
    yield from norm_cases(n, 112, 64)
    yield from norm_cases(n, 7, 2048)
    yield from norm_cases(n, 7, 1280)
    yield from pool_cases(n)
    yield from step_cases(n)
    yield from depthwise_cases(n)


@jax.jit
def random_halves(seed: jax.Array) -> jax.Array:
    """A megabyte of normal halves as bytes."""
    values = jax.random.normal(jax.random.key(seed), (1 << 19,), jnp.float16)
    return jax.lax.bitcast_convert_type(values, jnp.uint8).reshape(-1)


def filled(size: int) -> jax.Array:
    """A bank of random halves."""
    block = random_halves(jnp.uint32(size % 97))
    return jnp.tile(block, -(-size // block.size))[:size]


def measured(case: Case, plan_launches: Any, repeats: int) -> tuple[float, bool]:
    """Microseconds of a call, and whether it gives the same bits twice."""
    call, size = case.call()

    def several(bank: jax.Array, count: int) -> jax.Array:
        banks, _ = thread([call] * count, {Bank.SCRATCH: bank}, {}, plan_launches)
        return banks[Bank.SCRATCH]

    once = jax.jit(partial(several, count=1), donate_argnums=0)
    same = bool(jnp.array_equal(once(filled(size)), once(filled(size))))
    medians = []
    for count in (FEW_CALLS, CALLS):
        several_calls = jax.jit(partial(several, count=count), donate_argnums=0)
        bank = jax.block_until_ready(several_calls(filled(size)))
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            bank = jax.block_until_ready(several_calls(bank))
            times.append(time.perf_counter() - begin)
        medians.append(statistics.median(times))
    return (medians[1] - medians[0]) / (CALLS - FEW_CALLS) * 1e6, same


SHAPES = [
    DepthwiseShape(width, across, ahead, blocks=2 if width == 4 else 1)
    for width, across in ((4, 1), (4, 2), (8, 1))
    for ahead in (1, 2, 3)
]
"""Shapes of depthwise kernels that ``--variants`` measures."""


def shapes_of(case: Case, options: argparse.Namespace) -> list[DepthwiseShape | None]:
    """In which shapes a case is measured; None for the chosen one."""
    return [*SHAPES] if options.variants and case.name.startswith("depthwise") else [None]


def described(shape: DepthwiseShape) -> str:
    """A shape in few words."""
    return f"width {shape.width} across {shape.across} ahead {shape.ahead}"


@contextmanager
def depthwise_shape(shape: DepthwiseShape | None) -> Iterator[None]:
    """All depthwise kernels in this shape, while it lasts."""
    chosen = dict(depthwise_launches.DEPTHWISE)
    if shape is not None:
        kinds = itertools.product(("forward", "data", "weight"), (1, 2))
        depthwise_launches.DEPTHWISE.update(dict.fromkeys(kinds, shape))
    yield
    depthwise_launches.DEPTHWISE.clear()
    depthwise_launches.DEPTHWISE.update(chosen)


def compile_all(chosen: list[Case], plan_launches: Any, options: argparse.Namespace) -> None:
    """Compile every kernel side by side: the compiler works outside Python's lock."""
    if not isinstance(plan_launches, CudaKernels):
        return
    kernels = set()
    for case in chosen:
        for shape in shapes_of(case, options):
            with depthwise_shape(shape):
                kernels |= {launch.kernel for launch in launches_of(case.call()[0])}
    begin = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        list(pool.map(plan_launches.compiler.compile, kernels))
    print(f"{len(kernels)} kernels compiled in {time.perf_counter() - begin:.1f} s", flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--variants", action="store_true", help="depthwise in several shapes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="start no case after these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plan_launches = launches_for(jax.local_devices()[0])
    chosen = [
        c for c in cases(options.batch) if c.name == "copy" or re.search(options.only, c.name)
    ]
    compile_all(chosen, plan_launches, options)
    print(f"{jax.local_devices()[0]}, jax {jax.__version__}, batch {options.batch}, fp16")
    rows, copy, began = [], np.nan, time.perf_counter()
    wanted = [(case, shape) for case in chosen for shape in shapes_of(case, options)]
    for case, shape in wanted:
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        with depthwise_shape(shape):
            time_us, same = measured(case, plan_launches, options.repeats)
        rate = case.moved / time_us / 1e3
        copy = rate if case.name == "copy" else copy
        bits = "" if same else "  DIFFERENT BITS"
        label = "" if shape is None else f"  {described(shape)}"
        print(
            f"{case.name:44s} {time_us:8.1f} us {rate:7.0f} GB/s {rate / copy:6.1%}{bits}{label}",
            flush=True,
        )
        row = {"name": case.name, "us": time_us, "bytes": case.moved, "same_bits": same}
        rows.append(row if shape is None else {**row, "shape": described(shape)})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
