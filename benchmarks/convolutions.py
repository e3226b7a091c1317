"""Measures the convolutions of a network's train step as our handler runs them, against XLA's.

    python benchmarks/convolutions.py [--net resnet50] [--batch 256] [--only TEXT] [--seconds 90]
                                      [--no-xla] [--no-check] [--json FILE]

Every distinct convolution runs as the step runs it: in place on a bank, as nodes of a captured
graph, with the engine that was chosen for it. XLA's is the same convolution on arrays, compiled by
XLA with its own choice of algorithm, with mean and variance where ours has statistics. Both are
medians over executables of many calls. Each result is compared with a sum over the filter's taps of
matrix products in fp32: within 2e-3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.calls.targets import Convolution
from renaissance.lowering.fused.norms import partial_rows
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.convolutions import as_convolution
from renaissance.models import by_name
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for

FEW, MANY = 5, 25
TARGETS = {
    "forward": targets.CONV_FORWARD,
    "forward_statistics": targets.CONV_FORWARD_STATISTICS,
    "backward_data": targets.CONV_BACKWARD_DATA,
    "backward_weight": targets.CONV_BACKWARD_WEIGHT,
}
ATTRIBUTES = ("n", "h", "w", "c", "k", "p", "q", "r", "s", "stride", "pad", "groups")
Array = jax.Array


def convolutions_of(net: str, batch: int) -> Counter[Convolution]:
    """The convolutions of a train step under AMP, each with how often it runs.

    One with statistics comes without them, too, so that their price can be seen.
    """
    program = rn.compile(
        by_name(net), (224, 224, 3), batch, num_classes=1000, amp=True, lowering="xla"
    )
    calls = train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls
    found = Counter(as_convolution(call) for call in calls if call.target in TARGETS.values())
    for one in list(found):
        if one.kind == "forward_statistics":
            found[replace(one, kind="forward")] += found[one]
    return found


class Layer:
    """A convolution's arrays, and its three passes by whoever computes them."""

    def __init__(self, convolution: Convolution):
        self.sizes = dict(zip(ATTRIBUTES, convolution.sizes, strict=True))
        s = self.sizes
        self.x = (s["n"], s["h"], s["w"], s["c"])
        self.w = (s["k"], s["r"], s["s"], s["c"] // s["groups"])
        self.y = (s["n"], s["p"], s["q"], s["k"])

    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Shapes of the two operands and the result, in the order of the operation's record."""
        if kind == "backward_data":
            return self.y, self.w, self.x
        if kind == "backward_weight":
            return self.x, self.y, self.w
        return self.x, self.w, self.y

    def by_xla(self, x: Array, w: Array) -> Array:
        """y as XLA's convolution."""
        stride, pad = self.sizes["stride"], self.sizes["pad"]
        return lax.conv_general_dilated(
            x, w, (stride, stride), [(pad, pad)] * 2,
            dimension_numbers=("NHWC", "OHWI", "NHWC"), feature_group_count=self.sizes["groups"],
        )  # fmt: skip

    def by_taps(self, x: Array, w: Array) -> Array:
        """y in fp32, tap by tap; for one group."""
        s = self.sizes
        pad, stride = s["pad"], s["stride"]
        padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        y = jnp.zeros(self.y, jnp.float32)
        for r in range(s["r"]):
            for t in range(s["s"]):
                ends = r + (s["p"] - 1) * stride + 1, t + (s["q"] - 1) * stride + 1
                seen = padded[:, r : ends[0] : stride, t : ends[1] : stride]
                y += jnp.einsum("npqc,kc->npqk", seen, w[:, r, t], precision="highest")
        return y

    def passes(self, forward: Callable[[Array, Array], Array], kind: str) -> Callable[..., Array]:
        """One of the passes of a forward function, of its two operands."""
        if kind.startswith("forward"):
            return forward
        if kind == "backward_data":
            return lambda dy, w: _gradient(lambda x: forward(x, w), self.x, dy)
        return lambda x, dy: _gradient(lambda w: forward(x, w), self.w, dy)


def _gradient(linear: Callable[[Array], Array], shape: tuple[int, ...], dy: Array) -> Array:
    return jax.vjp(linear, jnp.zeros(shape, dy.dtype))[1](dy)[0]


def call_of(convolution: Convolution, layer: Layer) -> tuple[InPlaceCall, int]:
    """The call on a bank of its own: operands, result, workspace; and the bank's bytes."""
    sizes = [int(np.prod(shape)) * 2 for shape in layer.shapes(convolution.kind)]
    places, end = [], 0
    sizes.append(convolution.workspace_bytes)
    attributes: dict[str, Any] = {**layer.sizes, "type": 1}
    if convolution.kind == "forward_statistics":
        pieces = partial_rows(int(np.prod(layer.y[:3])), layer.y[3])
        sizes += [4 * layer.y[3]] * 6 + [8 * layer.y[3] * pieces]
        attributes |= {"partial_rows": pieces, "momentum": 0.1, "eps": 1e-5}
    for size in sizes:
        places.append(Location(Bank.SCRATCH, end, size, convolution.kind))
        end += -(-size // 256) * 256
    attributes |= {"workspace_bytes": convolution.workspace_bytes, "y_type": convolution.y_type}
    return InPlaceCall(TARGETS[convolution.kind], tuple(places), attributes, str(convolution)), end


def traffic(convolution: Convolution) -> int:
    """Elements that it must read and write: the largest part of the step comes first."""
    layer = Layer(convolution)
    return sum(int(np.prod(shape)) for shape in (layer.x, layer.w, layer.y))


@jax.jit
def random_halves(seed: Array) -> Array:
    """A megabyte of normal halves as bytes."""
    values = jax.random.normal(jax.random.key(seed), (1 << 19,), jnp.float16)
    return lax.bitcast_convert_type(values, jnp.uint8).reshape(-1)


def halves(bank: Array, place: Any, shape: tuple[int, ...]) -> Array:
    """A tensor of a bank."""
    piece = bank[place.offset : place.offset + place.nbytes]
    return lax.bitcast_convert_type(piece.reshape(-1, 2), jnp.float16).reshape(shape)


def microseconds(several: Callable[[Any, int], Any], given: Any, repeats: int) -> float:
    """Median time of a call: what FEW and MANY of them in an executable differ by.

    Args:
        several: Makes so many calls on a state, and gives it back.
        given: The state, which is given up.
        repeats: Runs of either executable.
    """
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    for count, measured_times in times.items():
        run = jax.jit(lambda state, count=count: several(state, count), donate_argnums=0)
        given = jax.block_until_ready(run(given))
        for _ in range(repeats):
            begin = time.perf_counter()
            given = jax.block_until_ready(run(given))
            measured_times.append(time.perf_counter() - begin)
    few, many = (statistics.median(times[count]) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW) * 1e6


def several_by_xla(layer: Layer, kind: str) -> Callable[..., Any]:
    """Passes by XLA; each leaves a number in the operand of the next, or XLA would drop it."""
    one = layer.passes(layer.by_xla, kind)

    def trace_of(result: Array) -> Array:
        corner = result[0, 0, 0, 0]
        if kind != "forward_statistics":
            return corner
        wide = result.astype(jnp.float32)
        moments = jnp.mean(wide, (0, 1, 2)), jnp.var(wide, (0, 1, 2))
        return corner + (moments[0][0] + moments[1][0]).astype(jnp.float16)

    def several(pair: tuple[Array, Array], count: int) -> tuple[Array, Array]:
        first, second = pair
        for _ in range(count):
            first = first.at[0, 0, 0, 0].set(trace_of(one(first, second)) * 0.01)
        return first, second

    return several


def measured(convolution: Convolution, plan_launches: Any, options: Any) -> dict[str, Any]:
    """Times of a convolution, and how far it is from the reference."""
    layer, kind = Layer(convolution), convolution.kind
    call, size = call_of(convolution, layer)
    block = random_halves(jnp.uint32(7))
    bank = jnp.tile(block, -(-size // block.size))[:size]

    def several(bank: Array, count: int) -> Array:
        return thread([call] * count, {Bank.SCRATCH: bank}, {}, plan_launches)[0][Bank.SCRATCH]

    row: dict[str, Any] = {"name": str(convolution), "kind": kind, "sizes": convolution.sizes}
    row["us"] = microseconds(several, bank.copy(), options.repeats)
    first, second, result = layer.shapes(kind)
    a, b, y = (place for place in call.operands[:3])
    if options.check:
        ours = halves(jax.jit(lambda bank: several(bank, 1))(bank), y, result)
        wide = (
            halves(bank, a, first).astype(jnp.float32),
            halves(bank, b, second).astype(jnp.float32),
        )
        theirs = jax.jit(layer.passes(layer.by_taps, kind))(*wide).astype(jnp.float32)
        difference = jnp.linalg.norm((ours.astype(jnp.float32) - theirs).reshape(-1))
        row["error"] = float(difference / jnp.linalg.norm(theirs.reshape(-1)))
    if options.xla:
        pair = jnp.copy(halves(bank, a, first)), jnp.copy(halves(bank, b, second))
        row["xla_us"] = microseconds(several_by_xla(layer, kind), pair, options.repeats)
    s = layer.sizes
    macs = s["n"] * s["p"] * s["q"] * s["k"] * s["r"] * s["s"] * s["c"] // s["groups"]
    row["tflops"] = 2 * macs / row["us"] / 1e6
    return row


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90.0, help="start nothing after these")
    parser.add_argument("--xla", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    counted = convolutions_of(options.net, options.batch)
    chosen = [one for one in counted if options.only in str(one)]
    chosen.sort(key=lambda one: -counted[one] * traffic(one))
    plan_launches = launches_for(jax.local_devices()[0])
    if isinstance(plan_launches, CudaKernels):
        plan_launches.prepare(call_of(one, Layer(one))[0] for one in chosen)
    print(
        f"{jax.local_devices()[0].device_kind}, jax {jax.__version__}, fp16, batch {options.batch}"
    )
    print(
        f"{len(chosen)} plans chosen and built after {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    for one in chosen:
        if time.perf_counter() - began > options.seconds:
            print("no time for the rest")
            break
        row = {**measured(one, plan_launches, options), "times": counted[one]}
        rows.append(row)
        wrong = "  WRONG" if not row.get("error", 0.0) <= 2e-3 else ""
        print(
            f"{row['us']:8.1f} us {row['tflops']:5.0f} TFLOP/s"
            f"  XLA {row.get('xla_us', np.nan):8.1f} us  error {row.get('error', np.nan):.1e}"
            f"  {row['times']} of {one}{wrong}",
            flush=True,
        )
    for kind in TARGETS:
        mine = [row for row in rows if row["kind"] == kind]
        ours = sum(row["us"] * row["times"] for row in mine) / 1e3
        theirs = sum(row.get("xla_us", np.nan) * row["times"] for row in mine) / 1e3
        print(f"{kind}: {ours:.2f} ms a step, XLA {theirs:.2f} ms ({len(mine)} shapes)")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
