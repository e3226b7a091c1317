"""An epoch of MNIST with five random transforms on the device: preparation, training, and both.

python benchmarks/mnist_epoch.py --data DIR [--lowering xla fused] [--epochs 20]

Preparation is XLA's and the fused lowering's one launch for all batches.

The recipe's network and optimizer under AMP, 300 steps of 200. An epoch is timed from the shuffled
order of its samples to its mean loss on the host. Medians; the first two epochs do not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import renaissance as rn
from renaissance import models
from renaissance.data import loader
from renaissance.data.device_loader import DeviceLoader
from renaissance.data.device_pipeline import DeviceData
from renaissance.data.idx import load_mnist
from renaissance.data.transforms import Pad, RandomCrop, RandomErasing, RandomRotation, RandomScale
from renaissance.lowering.rewrites.augment import Drafts, make_batches
from renaissance.program.fused import launches_for
from renaissance.program.made_steps import augmentation_of

CHAIN = (Pad(2), RandomCrop(28), RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5))
BATCH = 200


def source(directory: str, transforms: tuple[Any, ...]) -> DeviceLoader:
    """Training batches, made on the device."""
    return DeviceLoader(
        loader(
            load_mnist(directory, train=True),
            batch_size=BATCH,
            shuffle=True,
            seed=123,
            transforms=transforms,
            normalization="MNIST",
            dtype=np.float16,
        )
    )


def compiled(lowering: str, steps: int, epochs: int) -> Any:
    """The recipe's network."""
    return rn.compile(
        models.mlp(),
        (28, 28, 1),
        BATCH,
        loss=rn.CrossEntropy(label_smoothing=0.1),
        optimizer=rn.AdamW(weight_decay=1e-4),
        scheduler=rn.CosineAnnealing(base_lr=1e-3, warmup=5),
        steps_per_epoch=steps,
        epochs=max(epochs, 100),
        amp=True,
        lowering=lowering,
    )


def milliseconds(work: Callable[[int], Any], epochs: int) -> float:
    """Median time of ``work(epoch)``, its result waited for."""
    times = []
    for epoch in range(epochs):
        begin = time.perf_counter()
        jax.block_until_ready(work(epoch))
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


def preparation(directory: str, transforms: tuple[Any, ...], epochs: int, fused: bool) -> float:
    """Milliseconds for all batches of an epoch, their order given."""
    train = source(directory, transforms)
    samples, prepare = train.pipeline.place(), train.pipeline.prepare
    if fused:
        augmentation = augmentation_of(train.pipeline)
        launches = launches_for(jax.local_devices()[0])

        def make(data: DeviceData, ids: jax.Array, epoch: jax.Array) -> Any:
            given = Drafts(data.images, data.labels, ids, data.seed, epoch, data.tables, data.table)
            return make_batches(augmentation, given, launches)

        prepare = jax.jit(make)
    ids = jnp.asarray(np.stack(train.host.id_batches(0)), jnp.int32)
    return milliseconds(lambda epoch: prepare(samples, ids, np.uint32(epoch)), epochs)


def measure(name: str, train: DeviceLoader, epochs: int) -> None:
    """One lowering's line."""
    program = compiled(name, len(train), epochs)
    state = program.init(123)
    loss = float("nan")

    def epoch(number: int) -> None:
        nonlocal state, loss
        state = program.clear_metrics(state)
        for rows in train.rows(number):
            state, _ = program.train_steps(state, rows)
        loss = program.epoch_metrics(state)["loss"]

    whole = milliseconds(epoch, epochs)
    ready = list(train.stacks(0))

    def steps(number: int) -> Any:
        nonlocal state
        for batches in ready:
            state, metrics = program.train_steps(state, batches)
        return metrics.array

    training = milliseconds(steps, epochs)
    print(
        f"{name:6} whole epoch {whole:8.2f} ms, training alone {training:8.2f} ms "
        f"({1000 * training / len(train):.1f} us a step), loss after {epochs} epochs {loss:.4f}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="directory with the IDX files")
    parser.add_argument("--lowering", nargs="+", default=["xla", "fused"])
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    train = source(options.data, CHAIN)
    print(f"{jax.devices()[0].device_kind}: {len(train)} steps of {BATCH}", train.stack_sizes)
    for length in (0, 3, 5):
        names = ", ".join(type(t).__name__ for t in CHAIN[:length]) or "normalisation only"
        xla, kernel = (
            preparation(options.data, CHAIN[:length], options.epochs, fused)
            for fused in (False, True)
        )
        print(f"preparation by XLA {xla:8.3f} ms, one launch {kernel:8.3f} ms: {names}", flush=True)
    order = milliseconds(lambda n: train.host.order(n), options.epochs)
    print(f"order of an epoch, on the host beside the device: {order:.2f} ms", flush=True)
    for name in options.lowering:
        try:
            measure(name, train, options.epochs)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
