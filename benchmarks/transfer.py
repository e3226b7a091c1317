"""Batches from the host to the device: what a copy costs, and whether steps hide it.

python benchmarks/transfer.py [--quick]

Copies by ``jax.device_put`` from memory of three kinds: plain, page-locked by us, and JAX's own
``pinned_host``. Then steps that only compute, against the same steps each with a batch of its own
through a transfer station whose slots are plain or page-locked. At last a slot is overwritten as
soon as its copy is reported complete, and the copy compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from renaissance.data import TransferStation
from renaissance.data.buffers import paged, pinned
from renaissance.data.device_pipeline import copy_to_device

HALF = np.dtype(np.float16)
REPEATS = 10


def copies(shape: tuple[int, ...]) -> None:
    """A line for each kind of memory."""
    device = jax.local_devices()[0]
    plain, (locked, is_locked) = paged(shape, HALF), pinned(shape, HALF)
    plain[...], locked[...] = 1, 1
    in_jax = jax.device_put(plain, SingleDeviceSharding(device, memory_kind="pinned_host"))
    sources = {"plain": plain, f"page-locked ({is_locked})": locked, "pinned_host": in_jax}
    for name, source in sources.items():
        calls, whole = [], []
        for _ in range(REPEATS + 2):
            begin = time.perf_counter()
            copy = jax.device_put(source, SingleDeviceSharding(device))
            calls.append(time.perf_counter() - begin)
            jax.block_until_ready(copy)
            whole.append(time.perf_counter() - begin)
        call, taken = statistics.median(calls[2:]), statistics.median(whole[2:])
        print(
            f"{name:20} {plain.nbytes / 1e6:7.2f} MB: call {1e3 * call:7.3f} ms, "
            f"done {1e3 * taken:7.3f} ms, {plain.nbytes / taken / 1e9:6.1f} GB/s",
            flush=True,
        )


class Filled:
    """A loader whose batches are in the slots already: only their copies take time."""

    def __init__(self, shape: tuple[int, ...], steps: int) -> None:
        self.batch_size, self.image_shape = shape[0], shape[1:]
        self.preparation = SimpleNamespace(dtype=HALF)
        self.engine = SimpleNamespace(announce=lambda ids: None)
        self._steps = steps

    def id_batches(self, epoch: int) -> list[np.ndarray]:
        """So many full batches."""
        return [np.arange(self.batch_size)] * self._steps

    def fill(self, ids: Any, epoch: int, images: np.ndarray, labels: np.ndarray) -> None:
        """Nothing: see the class."""


def overlap(shape: tuple[int, ...], side: int, steps: int) -> None:
    """Steps with a copy each against steps without."""
    x = jnp.ones((side, side), jnp.bfloat16)

    @jax.jit
    def step(state: jax.Array, images: jax.Array) -> jax.Array:
        product = jax.lax.fori_loop(0, 40, lambda _, z: (z @ x) * jnp.bfloat16(1 / side), state)
        return product + images.ravel()[0].astype(jnp.bfloat16)

    fixed = jax.device_put(np.ones(shape, HALF))

    def without() -> None:
        run(fixed for _ in range(steps))

    def through(locked: bool) -> Callable[[], None]:
        station: Any = TransferStation(
            Filled(shape, steps),  # type: ignore[arg-type]
            copy_to_device,
            jax.block_until_ready,
            pinned=locked,
        )
        return lambda: run(images for images, _ in station.batches(0))

    def run(batches: Any) -> None:
        state, in_flight = x, []
        for images in batches:
            state = step(state, images)
            in_flight.append(state)
            if len(in_flight) > 2:
                jax.block_until_ready(in_flight.pop(0))
        jax.block_until_ready(state)

    for name, work in {
        "without copies": without,
        "through plain slots": through(False),
        "through locked slots": through(True),
    }.items():
        work()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            work()
            times.append(1e3 * (time.perf_counter() - begin) / steps)
        print(f"{name:22} {statistics.median(times):8.3f} ms a step", flush=True)


def stress(shape: tuple[int, ...], rounds: int) -> None:
    """A slot overwritten after each reported completion."""
    slot, is_locked = pinned(shape, HALF)
    wrong = 0
    for value in range(rounds):
        slot[...] = value
        images, _ = copy_to_device((slot, np.zeros(1, np.int32)))
        jax.block_until_ready(images)
        slot[...] = -1
        wrong += not bool(jnp.all(images == value))
    print(
        f"page-locked ({is_locked}), overwritten {rounds} times: {wrong} copies wrong", flush=True
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, to try the script")
    quick = parser.parse_args().quick
    print(jax.__version__, jax.devices()[0].device_kind)
    large = (8, 32, 32, 4) if quick else (256, 224, 224, 4)
    for shape in (large, (200, 28, 28, 1)):
        copies(shape)
    overlap(large, 64 if quick else 4096, 4 if quick else 20)
    stress(large, 3 if quick else 20)


if __name__ == "__main__":
    main()
