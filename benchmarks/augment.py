"""Batches made on the device: the kernel, in several shapes of its launch, against XLA.

python benchmarks/augment.py [--quick]

Microseconds for all batches of a case, from a loop inside one executable, so that no dispatch is in
them; the least bytes are every pixel of the samples read and every one of the batches written. The
kernel's batches are first held against the host's, byte by byte.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import NativeError
from renaissance.data import (
    ArrayDataset,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomScale,
    loader,
)
from renaissance.data.device_pipeline import DevicePipeline
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Launch
from renaissance.lowering.launches.augment import augment_batch
from renaissance.lowering.rewrites.augment import Drafts, make_batches
from renaissance.program.cuda import CudaKernels
from renaissance.program.fused import launches_for
from renaissance.program.made_steps import augmentation_of

WARPS = (RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5))
FLIPS = (RandomHorizontalFlip(), RandomErasing(0.5))
CASES: list[tuple[str, tuple[int, ...], int, int, int, tuple[Any, ...]]] = [
    ("MNIST, an epoch", (28, 28, 1), 60_000, 60_000, 1, (Pad(2), RandomCrop(28), *WARPS)),
    ("MNIST, a batch", (28, 28, 1), 60_000, 200, 1, (Pad(2), RandomCrop(28), *WARPS)),
    ("CIFAR, a batch", (32, 32, 3), 50_000, 256, 4, (Pad(4), RandomCrop(32), *FLIPS)),
    ("256 pixels a side", (256, 256, 3), 2_000, 256, 4, (RandomCrop(224), *FLIPS)),
]
"""Name, shape of the samples, how many, rows of a batch, its channels, transforms."""
SHAPES = [(None, 8), (64, 8), (128, 8), (256, 8), (256, 4), (512, 8)]
"""Threads of a block, pixels of a thread."""
REPEATS = 10


def pipeline_of(case: tuple[Any, ...]) -> tuple[Any, DevicePipeline]:
    """The host's loader and the device's twin."""
    _, shape, samples, rows, channels, transforms = case
    images = np.random.default_rng(0).integers(0, 256, (samples, *shape), np.uint8)
    data = ArrayDataset(images, np.arange(samples) % 10, 10)
    host = loader(
        data, batch_size=rows, shuffle=True, seed=1, transforms=transforms, dtype=np.float16,
        normalization="MNIST", channels=channels,
    )  # fmt: skip
    return host, DevicePipeline.of(host)


def microseconds(make: Callable[[Any, Any, Any], Any], data: Any, ids: Any, loops: int) -> float:
    """Median time of one making of batches, out of a loop of them with other epochs."""

    def many(data: Any, ids: Any, epoch: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            return make(data, ids, epoch + i.astype(jnp.uint32))

        return jax.lax.fori_loop(0, loops, body, make(data, ids, epoch))

    compiled, times = jax.jit(many), []
    jax.block_until_ready(compiled(data, ids, np.uint32(0)))
    for repeat in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(data, ids, np.uint32(repeat)))
        times.append(1e6 * (time.perf_counter() - begin) / (loops + 1))
    return statistics.median(times)


def maker(pipeline: DevicePipeline, launches: Any) -> Callable[[Any, Any, Any], Any]:
    """Batches by the kernel."""
    augmentation = augmentation_of(pipeline)

    def make(data: Any, ids: Any, epoch: Any) -> Any:
        given = Drafts(data.images, data.labels, ids, data.seed, epoch, data.tables, data.table)
        return make_batches(augmentation, given, launches)

    return make


def run(case: tuple[Any, ...], quick: bool) -> None:
    """The lines of one case."""
    name, _, _, rows, _, _ = case
    host, pipeline = pipeline_of(case)
    data, ids = pipeline.place(), jnp.asarray(host.id_batches(3)[0][None], jnp.int32)
    loops = 1 if quick else max(3, 2_000_000 // (rows * int(np.prod(pipeline.image_shape))))
    kernels = launches_for(jax.local_devices()[0])
    wanted, wanted_labels = next(host.batches(3))
    images, labels = jax.jit(maker(pipeline, kernels))(data, ids, np.uint32(3))
    same = np.asarray(images[0]).tobytes() == wanted.tobytes()
    same = same and np.array_equal(labels[0], wanted_labels)
    h, w, c = pipeline.chain.before
    nbytes = rows * (h * w * c + 2 * int(np.prod(pipeline.image_shape)))
    print(f"{name}: {rows} samples, {nbytes / 1e6:.1f} MB, the host's bytes: {same}", flush=True)
    shapes = SHAPES if isinstance(kernels, CudaKernels) and not quick else []

    def measured(shape: tuple[int | None, int]) -> Any:
        def launches(call: InPlaceCall) -> list[Launch]:
            return [kernels.launch(planned) for planned in augment_batch(call, *shape)]

        return launches

    makers: dict[str, Any] = {"one launch": kernels}
    makers |= {f"  {t or 'chosen'} threads, {p} pixels": measured((t, p)) for t, p in shapes}
    if isinstance(kernels, CudaKernels):  # compile side by side
        probe = {"chain": np.array(pipeline.chain.records()), "rows": rows, "type": 1}
        call = InPlaceCall(
            targets.AUGMENT_BATCH, (), {**probe, "padded_channels": pipeline.image_shape[2]}
        )
        with ThreadPoolExecutor() as pool:
            planned = [launch for shape in shapes for launch in augment_batch(call, *shape)]
            list(pool.map(kernels.compiler.compile, [launch.kernel for launch in planned]))
    for title, launches in makers.items():
        try:
            taken = microseconds(maker(pipeline, launches), data, ids, loops)
        except NativeError as error:
            print(f"  {title}: {error}")
            continue
        print(f"  {title:28} {taken:10.1f} us {nbytes / taken / 1e3:8.1f} GB/s", flush=True)

    def by_xla(data: Any, ids: Any, epoch: Any) -> Any:
        images, labels = pipeline.batch(data, ids.reshape(-1), epoch)
        return images.reshape(*ids.shape, *pipeline.image_shape), labels.reshape(ids.shape)

    taken = microseconds(by_xla, data, ids, min(loops, 20))
    print(f"  {'XLA':28} {taken:10.1f} us {nbytes / taken / 1e3:8.1f} GB/s", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases, to try the script")
    options = parser.parse_args()
    print(jax.devices()[0].device_kind)
    for case in CASES:
        if options.quick:
            case = (*case[:2], 64, min(case[3], 20), *case[4:])
        run(case, options.quick)


if __name__ == "__main__":
    main()
