"""Profile: where the time of a train step goes, call by call, against what the device could do.

Every custom call of the fused step runs alone, many times in one executable on banks that two real
steps have filled; so a number is what the call costs inside the step, without Python. Repeats
change what lies in the banks (an optimizer keeps moving its weights), so every call starts from a
copy. The device's rates are measured in the same run, by a product and a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import fail
from renaissance.core.types import Bank, DType, GraphId, Variant
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, thread
from renaissance.lowering.calls.scene import TABLE, Scene
from renaissance.lowering.fused.nodes import lower_nodes
from renaissance.lowering.fused.passes import empty_table, train_pass
from renaissance.lowering.launches.work import Work, work_of
from renaissance.program.profile_report import Profile, ProfileRow, Rates

UNROLLED = 10
"""Calls in the body of a loop on an accelerator, so that the loop itself costs nothing."""
MOST_LOOPS = 200
MOST_SKIPPED = 30
SECONDS_OF_A_REPEAT = {"gpu": 10e-3, "cpu": 1e-3}
"""Wanted length of a timed repeat by platform: a GPU's launch of 50 us must not show."""


@dataclass(frozen=True)
class Measuring:
    """How a call is timed.

    Attributes:
        repeats: Timed repeats; the median counts.
        rates: What the device can do.
        platform: ``"cpu"`` or ``"gpu"``.
    """

    repeats: int
    rates: Rates
    platform: str

    def loops(self, work: Work) -> int:
        """Iterations of a repeat, from what a call takes at least."""
        least = max(work.floor(self.rates.flops, self.rates.bandwidth), 2e-6)
        wanted = SECONDS_OF_A_REPEAT.get(self.platform, 10e-3) / least / self.unrolled
        return max(1, min(MOST_LOOPS, int(wanted)))

    @property
    def unrolled(self) -> int:
        """Calls in the body of the loop."""
        return 1 if self.platform == "cpu" else UNROLLED


def profile(
    program: Any, *, repeats: int = 5, rates: Rates | None = None, seed: int = 0
) -> Profile:
    """Measure a program's train step; see :meth:`renaissance.program.Program.profile`."""
    device = jax.local_devices()[0]
    rates = measured_rates(program.config.amp) if rates is None else rates
    measuring = Measuring(repeats, rates, device.platform)
    batch = _random_batch(program, seed)
    state, step_us = _time_steps(program, batch, repeats)
    rows: list[ProfileRow] = []
    if program.backend.name == "fused":
        rows = _rows(program, state, batch, measuring)
    return Profile(
        title=f"{program.config.blueprint.name}, batch {program.config.options.batch}",
        precision=program.config.precision.value,
        lowering=program.backend.name,
        device=f"{device.device_kind} ({device.platform})",
        rates=rates,
        step_us=step_us,
        rows=tuple(rows),
    )


def measured_rates(half: bool) -> Rates:
    """What the device does at best: a large product in the compute type, and a large copy.

    Args:
        half: Whether the product is of fp16 matrices, else fp32.
    """
    accelerated = jax.default_backend() != "cpu"
    side, elements = (8192, 1 << 28) if accelerated else (768, 1 << 23)
    kind = jnp.float16 if half and accelerated else jnp.float32
    a = jax.random.normal(jax.random.key(0), (side, side), kind)
    product = jax.jit(lambda a, b: (a, a @ b))
    x = jax.random.normal(jax.random.key(1), (elements,), jnp.float32)
    negative = jax.jit(lambda x, _: (-x, ()), donate_argnums=0)
    seconds = _best(product, a, a), _best(negative, x, x[:1])
    return Rates(2 * side**3 / seconds[0], 2 * 4 * elements / seconds[1])


def _best(function: Callable[[Any, Any], Any], carried: Any, other: Any) -> float:
    """Least seconds of a call that gives back its first argument among five times five calls."""
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        for _ in range(5):
            carried, result = function(carried, other)
        jax.block_until_ready((carried, result))
        times.append((time.perf_counter() - begin) / 5)
    return min(times[1:])


def _random_batch(program: Any, seed: int) -> tuple[jax.Array, jax.Array]:
    shape = program.config.options.shape_id(Variant.TRAIN_BASE)
    rng = np.random.default_rng(seed)
    kind = np.float16 if program.config.amp else np.float32
    images = rng.standard_normal(tuple(shape), np.float32).astype(kind)
    labels = rng.integers(0, program.plan.num_classes, shape[0]).astype(np.int32)
    return jax.device_put(images), jax.device_put(labels)


def _time_steps(program: Any, batch: Any, repeats: int) -> tuple[Any, float]:
    """The state after a step that was not skipped, and microseconds of one called from Python."""
    state = program.init(0)
    steps = 2 if jax.default_backend() == "cpu" else 20
    for _ in range(2):
        state, _ = program.train_step(state, batch)
    jax.block_until_ready(state)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(steps):
            state, _ = program.train_step(state, batch)
        jax.block_until_ready(state)
        times.append((time.perf_counter() - begin) / steps * 1e6)
    # so many steps on one batch may have diverged: calls are timed on a state near the start
    del state
    state = program.init(0)
    for _ in range(MOST_SKIPPED):  # the loss scale may still be on its way down
        state, metrics = program.train_step(state, batch)
        if not metrics["skipped"]:
            return state, median(times)
    fail(ValueError, "steps in a row that overflowed", MOST_SKIPPED, "one with finite gradients")


# -- calls ----------------------------------------------------------------------------------------


def _rows(program: Any, state: Any, batch: Any, measuring: Measuring) -> list[ProfileRow]:
    backend = program.backend
    scene = Scene(program.memory, backend.recipe, DType(str(batch[0].dtype)))
    calls = train_pass(program.graph, scene).calls
    segments = segments_of(program, scene)
    arguments = {
        "images": batch[0][None],
        "labels": batch[1][None],
        "batch": jnp.zeros((), jnp.int32),
        "table": empty_table(1),
    }
    rows, known = [], {}
    for call in calls:
        key = _alike(call)
        if key not in known:
            known[key] = _time_call(call, state.banks, arguments, backend.plan_launches, measuring)
        work = work_of(call)
        floor = work.floor(measuring.rates.flops, measuring.rates.bandwidth) * 1e6
        name = segment_of(call, segments)
        rows.append(ProfileRow(name, str(call), known[key] * 1e6, work.nbytes, work.flops, floor))
    return rows


def _alike(call: InPlaceCall) -> Any:
    """Equal for calls that do the same work on other memory: they are timed once."""
    attributes = tuple(
        (name, value.tobytes() if isinstance(value, np.ndarray) else value)
        for name, value in sorted(call.attributes.items())
    )
    operands = tuple((o.bank, o.nbytes) if isinstance(o, Location) else o for o in call.operands)
    return call.target, attributes, operands


def _time_call(
    call: InPlaceCall,
    banks: Mapping[Bank, jax.Array],
    arguments: Mapping[str, jax.Array],
    plan_launches: Any,
    measuring: Measuring,
) -> float:
    """Median seconds of a call among many of its kind in one executable."""
    loops, unrolled = measuring.loops(work_of(call)), measuring.unrolled
    outside = {name: value for name, value in arguments.items() if name != TABLE.name}

    def run(carried: dict[str, jax.Array], outside: dict[str, jax.Array]) -> dict[str, jax.Array]:
        def body(index: jax.Array, carried: dict[str, jax.Array]) -> dict[str, jax.Array]:
            current = {bank: carried[bank.name] for bank in call.banks}
            table = carried[TABLE.name]
            for _ in range(unrolled):
                given = {**outside, TABLE.name: table}
                current, after = thread([call], current, given, plan_launches)
                table = after[TABLE.name]
            return {**{bank.name: array for bank, array in current.items()}, TABLE.name: table}

        return jax.lax.fori_loop(0, loops, body, carried)

    carried = {bank.name: jnp.array(banks[bank], copy=True) for bank in call.banks}
    carried[TABLE.name] = jnp.array(arguments[TABLE.name], copy=True)
    compiled = jax.jit(run, donate_argnums=0).lower(carried, outside).compile()
    times = []
    for _ in range(measuring.repeats + 1):
        begin = time.perf_counter()
        carried = jax.block_until_ready(compiled(carried, outside))
        times.append((time.perf_counter() - begin) / (loops * unrolled))
    return median(times[1:])


# -- segments -------------------------------------------------------------------------------------

Segments = Mapping[tuple[str, str], GraphId]


def segments_of(program: Any, scene: Scene) -> Segments:
    """The sub-graph of every call of the step, by its target and what it works for."""
    order = [GraphId.TRANSFER_A, *program.graph.train_order]
    found: dict[tuple[str, str], GraphId] = {}
    for graph_id in order:
        for call in lower_nodes(scene, program.graph.graph[graph_id]):
            found.setdefault((call.target.name, call.where), graph_id)
            found.setdefault(("", call.where), graph_id)
    return found


def segment_of(call: InPlaceCall, segments: Segments) -> str:
    """The sub-graph a call came from. What the ends of a step were joined into counts as the
    transfer at its begin and the metrics at its end.
    """
    if call.target in (targets.BEGIN_STEP, targets.LOAD_BATCH):
        return GraphId.TRANSFER_A.name
    exact = segments.get((call.target.name, call.where))
    found = segments.get(("", call.where)) if exact is None else exact
    return (GraphId.ACCUM_METRICS if found is None else found).name
