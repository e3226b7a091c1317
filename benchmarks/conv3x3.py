"""Measures 3x3 convolutions of 64 channels: a kernel of ours in several shapes against cuDNN.

    python benchmarks/conv3x3.py [--height 56] [--width 56] [--shapes 2,5,7 ...] [--library]

Forward with batch statistics, the gradient of the input, and that joined with the norm that reads
it; run, timed and checked as in ``benchmarks/stem_convolutions.py``, the joined one against cuDNN
and the passes of the norm.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from convolutions import Layer, call_of, halves, microseconds, random_halves
from jax import lax
from stem_convolutions import WHOLE, Case, Plan

from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.targets import Convolution
from renaissance.lowering.launches.conv3x3 import Conv3x3Shape, conv3x3
from renaissance.lowering.launches.convolutions import (
    as_convolution,
    behind_product,
    launches_behind,
)
from renaissance.lowering.launches.planned import PlannedLaunch
from renaissance.program.cuda import CudaKernels

KINDS = ("forward", "forward_statistics", "backward_data", "backward_data_norm")
WORKSPACE = 32 << 20


def planned(call: InPlaceCall, shape: Conv3x3Shape) -> list[PlannedLaunch]:
    """The launches of a call in a shape."""
    product = conv3x3(call, shape)
    return [product, *behind_product(call, product)]


class NormCase:
    """The input gradient and the norm that reads it, on a bank."""

    def __init__(self, one: Convolution):
        n, h, w, c = one.sizes[:4]
        self.shape = (n, h, w, c)
        layer, whole, row = Layer(one), n * h * w * c * 2, 4 * c
        sizes = {"dy": whole, "w": 9 * c * c * 2, "workspace": WORKSPACE, "product": whole}
        sizes |= {"x": whole, "gamma": row, "beta": row, "mean": row, "inverse_std": row}
        sizes |= {"dx": whole, "dgamma": row, "dbeta": row, "partial": 264 * 2 * row}
        self.places: dict[str, Location] = {}
        self.size = 0
        for name, size in sizes.items():
            self.places[name] = Location(Bank.SCRATCH, self.size, size, name)
            self.size += -(-size // 256) * 256
        absent = {"gate": 1, "argmax": 1, "shortcut": 5, "dshortcut": 3, "addend": 2}
        order = ("dy", "w", "workspace", "product", "gate", "argmax", "x", "gamma", "beta", "mean")
        order += ("inverse_std", "shortcut", "dx", "dgamma", "dbeta", "dshortcut", "partial")
        operands: list[Any] = []
        for name in (*order, "addend"):
            operands += [None] * absent[name] if name in absent else [self.places[name]]
        attributes: dict[str, Any] = {**layer.sizes, "type": 1, "workspace_bytes": WORKSPACE}
        attributes |= {"rows": n * h * w, "partial_rows": 264, "activation": 1, "kernel": 0}
        attributes |= {"argmax_bytes": 0}
        self.call = InPlaceCall(targets.CONV_BACKWARD_DATA_NORM, tuple(operands), attributes)
        self.theirs: jax.Array | None = None

    def bank(self) -> jax.Array:
        """Random halves, and constants of a norm."""
        block = halves(random_halves(jnp.uint32(7)), WHOLE, (-1,)) * jnp.float16(0.1)
        block = lax.bitcast_convert_type(block, jnp.uint8).reshape(-1)
        bank = jnp.tile(block, -(-self.size // block.size))[: self.size]
        rng = np.random.default_rng(3)
        for name in ("gamma", "beta", "mean", "inverse_std"):
            values = rng.normal(1.0, 0.2, 64) if name in ("gamma", "inverse_std") else None
            values = rng.normal(0.0, 0.05, 64) if values is None else values
            data = jnp.asarray(values.astype(np.float32).view(np.uint8))
            bank = lax.dynamic_update_slice(bank, data, (self.places[name].offset,))
        return bank

    def several(self, bank: jax.Array, count: int, plan: Plan) -> jax.Array:
        """So many calls on the bank."""
        return thread([self.call] * count, {Bank.SCRATCH: bank}, {}, plan)[0][Bank.SCRATCH]

    def measured(self, plan: Plan, repeats: int) -> tuple[float, float, bool]:
        """Microseconds, distance from what was measured first, whether the bits came twice."""

        @jax.jit
        def once(bank: jax.Array) -> jax.Array:
            return halves(self.several(bank, 1, plan), self.places["dx"], self.shape)

        bank = self.bank()
        ours = once(bank).astype(jnp.float32)
        same = bool(jnp.array_equal(ours, once(bank).astype(jnp.float32)))
        self.theirs = ours if self.theirs is None else self.theirs
        difference = jnp.linalg.norm((ours - self.theirs).reshape(-1))
        error = float(difference / jnp.linalg.norm(self.theirs.reshape(-1)))
        return microseconds(partial(self.several, plan=plan), bank, repeats), error, same


def plans_of(
    kernels: CudaKernels, call: InPlaceCall, shapes: list[Conv3x3Shape], *, library: bool
) -> Iterator[tuple[str, Plan]]:
    """Who may run a call."""
    is_joined = call.target == targets.CONV_BACKWARD_DATA_NORM
    if library or is_joined:
        yield "cuDNN", lambda call: kernels.by_library(call, as_convolution(call))
    if is_joined:
        alone = replace(call, target=targets.CONV_BACKWARD_DATA)
        apart = [conv3x3(alone), *launches_behind(call, summed=0)]
        yield "ours, and the norm apart", lambda _: [kernels.launch(p) for p in apart]
    for shape in shapes:
        yield (
            str(shape),
            lambda call, shape=shape: [kernels.launch(p) for p in planned(call, shape)],
        )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--height", type=int, default=56)
    parser.add_argument("--width", type=int, default=56)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--shapes", nargs="*", default=["2,5,7"], help="groups, stages, strip")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--library", action="store_true", help="cuDNN, too")
    options = parser.parse_args()
    kernels = CudaKernels(jax.local_devices()[0])
    n, h, w = options.batch, options.height, options.width
    sizes = (n, h, w, 64, 64, h, w, 3, 3, 1, 1, 1)
    shapes = [Conv3x3Shape(*map(int, text.split(","))) for text in options.shapes]
    for kind in options.kinds:
        is_joined = kind == "backward_data_norm"
        one = Convolution(kind.removesuffix("_norm"), 1, 1, sizes, WORKSPACE)
        call = NormCase(one).call if is_joined else call_of(one, Layer(one))[0]
        wanted = {p.kernel for shape in shapes for p in planned(call, shape)}
        with ThreadPoolExecutor() as pool:
            list(pool.map(kernels.compiler.compile, wanted))
        case: Case | NormCase = NormCase(one) if is_joined else Case(one)
        for name, plan in plans_of(kernels, call, shapes, library=options.library):
            time_us, error, same = case.measured(plan, options.repeats)
            wrong = "" if error <= 2e-3 and same else "  WRONG"
            what = f"{n}x{h}x{w} {kind}"
            print(f"{what} {time_us:8.1f} us  error {error:.1e}{wrong}  {name}", flush=True)


if __name__ == "__main__":
    main()
