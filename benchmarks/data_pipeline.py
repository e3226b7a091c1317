"""The data room's speed, beside its peers' in the same run.

    python benchmarks/data_pipeline.py --data ../shared/data [--peers] [--seconds 5]

Parts: the fused normalisation against the memory's bandwidth; the MNIST recipe with its five
transforms; CIFAR's crop, flip and normalisation; JPEG to ImageNet batches against the bare decoder.
With ``--peers`` the same work by torchvision on Pillow pictures with its DataLoader.

Every number is the median of several repeats, the rows of a part taking turns, so that whatever
else the machine does falls on all of them. On a machine that others use, ``--cpu-time`` counts the
seconds of processor time that this process got instead of those on the wall: rates of one
processor, for one worker each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from renaissance import data
from renaissance.data import codec, native
from renaissance.data.buffers import paged
from renaissance.data.native import processors

REPEATS = 5
FIVE = (
    data.Pad(2),
    data.RandomCrop(28),
    data.RandomRotation(20),
    data.RandomScale(0.8, 1.2),
    data.RandomErasing(0.5),
)
CROP_FLIP = (data.Pad(4), data.RandomCrop(32), data.RandomHorizontalFlip())
CLOCK = [time.perf_counter]
Work = Callable[[float], float]
"""Runs for about so many seconds and returns its rate."""


def now() -> float:
    """Seconds on the chosen clock."""
    return CLOCK[0]()


def worker_counts() -> list[int]:
    """One worker, and one per processor where the wall's clock tells what that brings."""
    return [1] if CLOCK[0] is time.process_time else sorted({1, len(processors())})


def take_turns(rows: dict[str, Work], seconds: float) -> dict[str, float]:
    """The median rate of every row."""
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for work in rows.values():
        work(min(0.5, seconds / REPEATS))  # warm up
    for _ in range(REPEATS):
        for name, work in rows.items():
            rates[name].append(work(seconds / REPEATS))
    return {name: statistics.median(values) for name, values in rates.items()}


def report(title: str, rates: dict[str, float], unit: str, against: str = "") -> None:
    print(f"\n{title}")
    for name, rate in rates.items():
        ratio = f"  {rate / rates[against]:6.2f}x" if against in rates else ""
        print(f"  {name:52} {rate:14,.0f} {unit}{ratio}", flush=True)


def of_batches(make: Callable[[], object]) -> Work:
    """The rate of samples of an endless sequence of loops."""

    def work(seconds: float) -> float:
        count, begin, previous = 0, now(), 0
        while True:
            for batch in make():  # type: ignore[attr-defined]
                count += len(batch[1])
                spent = now() - begin
                if spent > seconds and previous:
                    return count / spent
                previous = count

    return work


def normalisation(seconds: float) -> None:
    """Bytes per second through the fused pass, both directions counted, and a plain copy's."""
    shape = (224, 224, 3)
    image = np.random.default_rng(0).integers(0, 256, (64, *shape), np.uint8)
    rows: dict[str, Work] = {}

    def repeat(step: Callable[[int], None], bytes_per_step: int) -> Work:
        def work(limit: float) -> float:
            count, begin = 0, now()
            while now() - begin < limit:
                step(count % 64)
                count += 1
            return count * bytes_per_step / (now() - begin) / 1e6

        return work

    for dtype, channels in ((np.float32, 3), (np.float16, 4)):
        out = paged((64, *shape[:2], channels), np.dtype(dtype))
        source = np.random.default_rng(1).integers(0, 256, out.nbytes // 64, np.uint8)
        source = np.tile(source, (64, 1))
        target = np.empty_like(source)
        name = f"{np.dtype(dtype).name} x {channels} channels"
        rows[f"copy of as many bytes as {name}"] = repeat(
            lambda i, t=target, s=source: np.copyto(t[i], s[i]), 2 * source[0].nbytes
        )
        for isa in native.INSTRUCTION_SETS:
            normalizer = native.Normalizer(data.IMAGENET, 3, np.dtype(dtype), channels, isa)
            if normalizer.instruction_set == isa:
                rows[f"{name}, {isa}"] = repeat(
                    lambda i, n=normalizer, o=out: n.run(image[i], o[i], stream=True),
                    image[0].nbytes + out[0].nbytes,
                )
    report("Fused normalisation, one thread", take_turns(rows, seconds), "MB/s")


def small_pictures(
    title: str, dataset: data.ArrayDataset, transforms, norm, peers, seconds
) -> None:
    """Our loader with one worker and with one per processor, and the peers."""
    rows: dict[str, Work] = {}
    for workers in worker_counts():
        batches = data.loader(
            dataset, batch_size=200, shuffle=True, transforms=transforms, normalization=norm,
            workers=workers,
        )  # fmt: skip
        rows[f"renaissance, {workers} workers"] = of_batches(lambda b=batches: b)
    rows.update({name: of_batches(make) for name, make in peers.items()})
    rates = take_turns(rows, seconds)
    report(title, rates, "samples/s", next(iter(peers), ""))


def imagenet(folder: Path, seconds: float, peers: dict[str, Callable[[], object]]) -> None:
    """JPEG to batches, against the bare decoder."""
    dataset = data.FolderDataset(folder).in_memory()
    chain = (data.FastRandomResizedCrop(224), data.RandomHorizontalFlip())
    rows: dict[str, Work] = {}

    def bare(limit: float) -> float:
        count, begin = 0, now()
        while now() - begin < limit or count % len(dataset):
            codec.decode(dataset.read(count % len(dataset)), 3)
            count += 1
        return count / (now() - begin)

    rows["the bare decoder (simplejpeg), one thread"] = bare
    for name, transforms in (
        ("FastRandomResizedCrop, flip", chain),
        ("RandomResizedCrop, flip", (data.RandomResizedCrop(224), chain[1])),
    ):
        for workers in worker_counts():
            batches = data.loader(
                dataset, batch_size=25, shuffle=True, transforms=transforms, workers=workers,
                normalization="IMAGENET", dtype=np.float16, channels=4, prefetch=0,
            )  # fmt: skip
            rows[f"renaissance, {name}, {workers} workers"] = of_batches(lambda b=batches: b)
    rows.update({name: of_batches(make) for name, make in peers.items()})
    rates = take_turns(rows, seconds)
    report("JPEG to 224x224 fp16x4 batches", rates, "pictures/s", next(iter(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="holds mnist and imagenet-sample")
    parser.add_argument("--seconds", type=float, default=5.0, help="per row")
    parser.add_argument("--peers", action="store_true", help="torchvision beside ours")
    parser.add_argument("--cpu-time", action="store_true", help="count this process's time only")
    parser.add_argument("--only", default="", help="norm, mnist, cifar or imagenet")
    options = parser.parse_args()
    if options.cpu_time:
        CLOCK[0] = time.process_time
    found = {"mnist": {}, "cifar": {}, "imagenet": {}}
    mnist = data.load_mnist(options.data / "mnist")
    draw = np.random.default_rng(0)
    cifar = data.ArrayDataset(
        draw.integers(0, 256, (10_000, 32, 32, 3), np.uint8), draw.integers(0, 10, 10_000), 10
    )
    if options.peers:
        import data_peers

        found = data_peers.rows(
            mnist, cifar, options.data / "imagenet-sample", (0,) if options.cpu_time else (0, 2)
        )
    print(f"{len(processors())} processors, native library: {native.is_available()}")
    if options.only in ("", "norm"):
        normalisation(options.seconds)
    if options.only in ("", "mnist"):
        title = "MNIST, five transforms and normalisation"
        small_pictures(title, mnist, FIVE, "MNIST", found["mnist"], options.seconds)
    if options.only in ("", "cifar"):
        title = "CIFAR-10, pad, crop, flip and normalisation"
        small_pictures(title, cifar, CROP_FLIP, "CIFAR", found["cifar"], options.seconds)
    if options.only in ("", "imagenet"):
        imagenet(options.data / "imagenet-sample", options.seconds, found["imagenet"])


if __name__ == "__main__":
    main()
