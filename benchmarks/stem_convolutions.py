"""Measures the convolutions of four channels: kernels of ours in several shapes against cuDNN.

    python benchmarks/stem_convolutions.py [--net resnet50] [--batch 256] [--variants] [--library]

Forward with batch statistics, and the gradient of the filters, of the first layers of the
contract's networks; as ``benchmarks/convolutions.py`` runs and times them. Every result is compared
with a sum over the filter's taps of matrix products in fp32, within 2e-3, and must come out the
same twice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from convolutions import Layer, call_of, halves, microseconds, random_halves
from jax import lax

from renaissance.core.types import Bank
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.targets import Convolution, Launch
from renaissance.lowering.launches.convolutions import as_convolution, launches_behind
from renaissance.lowering.launches.planned import PlannedLaunch
from renaissance.lowering.launches.stem import (
    ForwardShape,
    WeightShape,
    forward_shape,
    stem_forward,
    stem_weight,
    weight_shape,
)
from renaissance.program.cuda import CudaKernels

WORKSPACE = 32 << 20
STEMS = {
    "resnet50": (64, 7, 2, 3),
    "mobilenet_v2": (32, 3, 2, 1),
    "vgg16_bn": (64, 3, 1, 1),
}
"""Channels, window, stride, pad; of 224 x 224 pixels."""
FORWARD: dict[str, list[ForwardShape]] = {
    "resnet50": [ForwardShape(6, 6, 1, 1)],
    "mobilenet_v2": [ForwardShape(8, 4, 2, 3), ForwardShape(4, 4, 1, 4)],
    "vgg16_bn": [ForwardShape(2, 4, 1, 2), ForwardShape(8, 4, 2, 1)],
}
WEIGHT: dict[str, list[WeightShape]] = {
    "resnet50": [
        WeightShape(4, 64, 1, 2, 2, 1),
        WeightShape(2, 64, 2, 2, 3, 1),
        WeightShape(4, 32, 4, 2, 2, 1),
    ],
    "mobilenet_v2": [WeightShape(2, 32, 3, 14, 4, 1), WeightShape(2, 32, 3, 7, 3, 2)],
    "vgg16_bn": [WeightShape(2, 64, 3, 4, 3, 1), WeightShape(2, 64, 2, 2, 3, 1)],
}
"""Shapes that ``--variants`` measures beside the chosen ones."""

WHOLE = Location(Bank.SCRATCH, 0, 1 << 20, "a block of random halves")
Plan = Callable[[InPlaceCall], Sequence[Launch]]


def convolution(net: str, kind: str, batch: int) -> Convolution:
    """A network's first layer."""
    k, kernel, stride, pad = STEMS[net]
    out = (224 + 2 * pad - kernel) // stride + 1
    sizes = (batch, 224, 224, 4, k, out, out, kernel, kernel, stride, pad, 1)
    return Convolution(kind, 1, 1, sizes, WORKSPACE)


def planned(call: InPlaceCall, shape: ForwardShape | WeightShape) -> list[PlannedLaunch]:
    """The launches of a call in a shape."""
    if isinstance(shape, WeightShape):
        return stem_weight(call, shape)
    product = stem_forward(call, shape)
    return [product, *launches_behind(call, summed=product.grid[0])]


def shapes_of(net: str, call: InPlaceCall, options: argparse.Namespace) -> list[Any]:
    """The chosen shape, and others where they are wanted."""
    is_forward = call.target.name.startswith("rn_conv_forward")
    others: list[Any] = [*(FORWARD if is_forward else WEIGHT)[net]] if options.variants else []
    return [(forward_shape if is_forward else weight_shape)(call.attributes), *others]


class Case:
    """A convolution on a bank, with what it must give."""

    def __init__(self, one: Convolution):
        self.layer, self.kind = Layer(one), one.kind
        self.call, self.size = call_of(one, self.layer)
        # small, so that a sum over millions of outputs stays below the largest half
        block = halves(random_halves(jnp.uint32(7)), WHOLE, (-1,)) * jnp.float16(0.1)
        block = lax.bitcast_convert_type(block, jnp.uint8).reshape(-1)
        self.bank = jnp.tile(block, -(-self.size // block.size))[: self.size]
        places, shapes = self.call.operands[:3], self.layer.shapes(one.kind)
        wide = [
            halves(self.bank, place, shape).astype(jnp.float32)
            for place, shape in zip(places[:2], shapes[:2], strict=True)
        ]
        reference = jax.jit(self.layer.passes(self.layer.by_taps, one.kind))
        self.theirs = reference(*wide).astype(jnp.float32)

    def several(self, bank: jax.Array, count: int, plan: Plan) -> jax.Array:
        """So many calls on the bank."""
        return thread([self.call] * count, {Bank.SCRATCH: bank}, {}, plan)[0][Bank.SCRATCH]

    def measured(self, plan: Plan, repeats: int) -> tuple[float, float, bool]:
        """Microseconds, distance from the reference, and whether the bits were the same twice."""
        place, shape = self.call.operands[2], self.layer.shapes(self.kind)[2]

        @jax.jit
        def once(bank: jax.Array) -> jax.Array:
            return halves(self.several(bank, 1, plan), place, shape)

        ours = once(self.bank)
        same = bool(jnp.array_equal(ours, once(self.bank)))
        difference = jnp.linalg.norm((ours.astype(jnp.float32) - self.theirs).reshape(-1))
        error = float(difference / jnp.linalg.norm(self.theirs.reshape(-1)))
        several = partial(self.several, plan=plan)
        return microseconds(several, self.bank.copy(), repeats), error, same


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", choices=[*STEMS], action="append")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", action="store_true", help="other shapes, too")
    parser.add_argument("--library", action="store_true", help="cuDNN, too")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    kernels = CudaKernels(device)
    nets = options.net or [*STEMS]
    kinds = ("forward_statistics", "backward_weight")
    ones = {(net, kind): convolution(net, kind, options.batch) for net in nets for kind in kinds}
    calls = {key: call_of(one, Layer(one))[0] for key, one in ones.items()}
    began = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        wanted = {
            launch.kernel
            for (net, _), call in calls.items()
            for shape in shapes_of(net, call, options)
            for launch in planned(call, shape)
        }
        list(pool.map(kernels.compiler.compile, wanted))
    print(f"{device.device_kind}: {len(wanted)} kernels in {time.perf_counter() - began:.1f} s")
    for (net, kind), one in ones.items():
        case = Case(one)
        plans: dict[str, Plan] = {
            str(shape): lambda call, shape=shape: [kernels.launch(p) for p in planned(call, shape)]
            for shape in shapes_of(net, case.call, options)
        }
        if options.library:
            plans["cuDNN"] = lambda call: kernels.by_library(call, as_convolution(call))
        for name, plan in plans.items():
            time_us, error, same = case.measured(plan, options.repeats)
            wrong = "" if error <= 2e-3 and same else "  WRONG"
            print(f"{net} {kind} {time_us:8.1f} us  error {error:.1e}{wrong}  {name}", flush=True)


if __name__ == "__main__":
    main()
