"""Counts the kernels of XLA's MLP loop, and times ways of checking that gradients are finite.

    python benchmarks/loop_kernels.py [--batch 200] [--widths 784,1024,512,256,10] [--steps 200]
        [--text FOLDER]

A small network feels every launch. Each variant is the loop of the XLA lowering with another
``all_finite``; ``none`` checks nothing and shows what there is to gain at most. ``split`` lets XLA
split the sums of products over blocks, which takes a launch to add the parts and often one to pad;
``library`` makes it call cuBLAS. Launches are those of the body of the compiled loop; ``--text``
keeps the modules.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fused_mlp import network, timed

import renaissance as rn
from renaissance.lowering import range as ranges
from renaissance.lowering.loop import train_steps
from renaissance.program.xla import compile_options

Check = Callable[[Mapping[str, jax.Array]], jax.Array]
SMALL = 1 << 16
NO_LAUNCH = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "call"})
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?[\])}] ([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:to_apply|called_computations=\{|calls)=?%?([\w.\-]+)")


def joined(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """One reduction over all elements side by side."""
    return jnp.all(jnp.isfinite(jnp.concatenate([x.ravel() for x in tensors.values()])))


def per_tensor(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """A reduction for every tensor."""
    return reduce(jnp.logical_and, [jnp.all(jnp.isfinite(x)) for x in tensors.values()])


def small_joined(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """Small tensors side by side, each large one alone."""
    small = [x.ravel() for x in tensors.values() if x.size <= SMALL]
    large = {name: x for name, x in tensors.items() if x.size > SMALL}
    rest = per_tensor(large) if large else jnp.asarray(True)
    return jnp.logical_and(rest, jnp.all(jnp.isfinite(jnp.concatenate(small)))) if small else rest


def by_rows(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """A flag per row of each tensor, then one reduction over all flags."""
    flags = [jnp.all(jnp.isfinite(x.reshape(x.shape[0], -1)), axis=1) for x in tensors.values()]
    return jnp.all(jnp.concatenate(flags))


def none(tensors: Mapping[str, jax.Array]) -> jax.Array:
    """No check: a bound, not a candidate."""
    return jnp.asarray(True)


_AS_IT_IS: Check = ranges.all_finite
VARIANTS: dict[str, Check] = {
    "as it is": _AS_IT_IS,
    "per tensor": per_tensor,
    "joined": joined,
    "small joined": small_joined,
    "by rows": by_rows,
    "none": none,
    "split": _AS_IT_IS,
    "library": _AS_IT_IS,
}
OPTIONS: dict[str, Any] = {"split": {}, "library": {"xla_gpu_enable_triton_gemm": False}}


def computations(text: str) -> dict[str, list[str]]:
    """The lines of every computation of a module, by name."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            current = found.setdefault(head[1], [])
        else:
            current.append(line)
    return found


def launches(text: str) -> Counter[str]:
    """What the body of the module's longest loop runs, counted by kind."""
    parts = computations(text)
    bodies = [m[1] for m in re.finditer(r"while\(.*?body=%?([\w.\-]+)", text)]
    counts = [_count(parts, body) for body in bodies]
    return max(counts, key=lambda count: count.total(), default=Counter())


def _count(parts: Mapping[str, list[str]], name: str) -> Counter[str]:
    count: Counter[str] = Counter()
    for line in parts.get(name, []):
        found = _INSTRUCTION.match(line)
        if not found:
            continue
        kind = found[1]
        if kind == "call" and (called := _CALLED.search(line)):
            count += _count(parts, called[1])
        if kind not in NO_LAUNCH:
            count[kind] += 1
    return count


def main() -> None:
    """Print a line for every variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--widths", default="784,1024,512,256,10")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--text", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    program = rn.compile(
        network(widths),
        (1, widths[0], 1),
        options.batch,
        amp=True,
        optimizer=rn.AdamW(weight_decay=1e-4),
        scheduler=rn.Constant(1e-3),
        lowering="xla",
    )
    rng = np.random.default_rng(0)
    shape = (options.steps, options.batch, 1, widths[0], 1)
    images = jnp.asarray(rng.standard_normal(shape, np.float32).astype(np.float16))
    labels = jnp.asarray(rng.integers(0, widths[-1], shape[:2]).astype(np.int32))
    for name, check in VARIANTS.items():
        ranges.all_finite = check  # type: ignore[assignment]
        state = program.init(0)
        backend = program.backend
        function = partial(train_steps, backend.recipe, backend.order)
        jitted = jax.jit(function, donate_argnums=0, keep_unused=True)
        ours = compile_options(backend.recipe, jax.default_backend())
        compiled = jitted.lower(state, images, labels).compile(OPTIONS.get(name, ours))
        text = compiled.as_text() or ""
        if options.text:
            (options.text / f"loop {name}.txt".replace(" ", "_")).write_text(text)
        held: list[Any] = [state]

        def run(held: list[Any] = held, compiled: Any = compiled) -> Any:
            held[0], _ = compiled(held[0], images, labels)
            return held[0]

        median, spread = timed(run, options.repeats, options.steps)
        count = launches(text)
        kinds = ", ".join(f"{number} {kind}" for kind, number in count.most_common())
        sha = program.sha256(held[0])[:12]
        print(
            f"{name:14}{median:8.2f} us a step +- {spread:.2f}  {count.total()} launches: {kinds}"
            f"  {sha}",
            flush=True,
        )


if __name__ == "__main__":
    main()
