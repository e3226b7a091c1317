"""Training from samples that lie on the device: the same bits, in fewer calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_data import batches

import renaissance as rn
from renaissance.core.settings import Settings
from renaissance.data import Loader, Pad, RandomCrop, RandomGrayscale
from renaissance.data.device_loader import DeviceLoader
from renaissance.data.transferred import TransferredLoader
from renaissance.task import CompileInfo
from renaissance.task.options import TrainingOptions
from renaissance.task.placement import place
from renaissance.task.steps import training_calls

BATCH_BYTES = 16 * 6 * 6 * 4
MOVED = {"transforms": (Pad(1), RandomCrop(6))}


def device(platform: str, limit: int | None = None) -> SimpleNamespace:
    stats = None if limit is None else {"bytes_limit": limit}
    return SimpleNamespace(platform=platform, memory_stats=lambda: stats)


def source(pipeline: str, on: SimpleNamespace, train=None, **options):
    chosen = TrainingOptions(pipeline=pipeline, **options)
    return place(train or batches(), batches(16, 8, shuffle=False), chosen, on)


def test_the_pipeline_changes_no_bit(make_task):
    """50 samples: three full batches, two of them in a stack, and one of two."""
    pairs = DeviceLoader(batches(50, **MOVED), stack_bytes=2 * BATCH_BYTES)
    assert pairs.stack_sizes == (2, 1, 1)
    results = []
    for train in (batches(50, **MOVED), pairs):
        task = make_task(train=train, files=False, epochs=2).compile(CompileInfo.NONE)
        results.append(task.run())
    for result in results[1:]:
        assert result.sha256 == results[0].sha256
        for record, expected in zip(result.records, results[0].records, strict=True):
            for column in ("steps", "samples", "train_loss", "val_top1", "lr", "complete"):
                assert getattr(record, column) == getattr(expected, column)


def test_a_dry_run_and_the_calls_of_an_epoch(make_task, capsys):
    train = DeviceLoader(batches(50, **MOVED))
    task = make_task(train=train, files=False, quiet=False).compile(CompileInfo.NONE).dry_run()
    text = capsys.readouterr().out
    assert "dry run: 3 train steps 16x6x6x1" in text
    assert "dry run: train step 2x6x6x1" in text
    assert "dry run: train step 16x6x6x1" not in text
    calls = training_calls(task.program, train)
    assert [(call.steps, call.shape.n) for call in calls] == [(3, 16), (1, 2)]
    calls = training_calls(task.program, train, stacked=False)
    assert [(call.steps, call.shape.n) for call in calls] == [(1, 16), (1, 2)]


def test_shrinking_pictures_come_singly(make_task):
    settings = Settings().manual_seed(1).train_resolution((6, 12)).val_resolution(12)
    val = batches(16, 8, shuffle=False, side=12, data=1)
    net = rn.seq(rn.conv(4, 3, 1, 1), rn.gap(), rn.fc(3))

    def run(train) -> str:
        task = make_task(settings=settings, model=net, train=train, val=val, epochs=2, files=False)
        return task.progressive_crop(1).compile(CompileInfo.NONE).run().sha256

    assert run(DeviceLoader(batches(side=12))) == run(batches(side=12))


@pytest.mark.parametrize("limit", [None, 10**6])
def test_auto_moves_what_fits_to_a_gpu(limit):
    train, val = source("auto", device("gpu", limit))
    assert isinstance(train, DeviceLoader) and isinstance(val, DeviceLoader)
    assert train.stack_sizes == (3,)


def test_auto_leaves_the_rest_where_it_is_and_sends_it_to_a_gpu():
    gpu, encoded = device("gpu", 10**6), object()
    assert isinstance(source("auto", device("cpu"))[0], Loader)
    assert isinstance(source("host", device("cpu"))[0], Loader)
    assert isinstance(source("host", gpu)[0], TransferredLoader)
    assert isinstance(source("host", gpu)[1], TransferredLoader)
    assert isinstance(source("auto", device("gpu", 1000))[0], TransferredLoader)
    assert isinstance(source("auto", gpu, batches(tolerant=True))[0], TransferredLoader)
    grey = batches(channels=3, transforms=(RandomGrayscale(),))
    assert source("auto", gpu, grey)[0].host is grey
    assert source("auto", gpu, encoded)[0] is encoded
    assert source("auto", gpu, None)[1] is not None


def test_batches_that_travel_ahead_change_no_bit(make_task):
    results = []
    for train in (batches(50, **MOVED), TransferredLoader(batches(50, **MOVED))):
        task = make_task(train=train, files=False, epochs=2).compile(CompileInfo.NONE)
        results.append(task.run().sha256)
    assert results[0] == results[1]


def test_steps_stay_single_where_loops_are_slow():
    assert source("device", device("cpu"))[0].stack_sizes == (1, 1, 1)


def test_a_source_that_cannot_move_is_named(make_task):
    with pytest.raises(ValueError, match="source for the device's pipeline is 'SimpleNamespace'"):
        source("device", device("cpu"), SimpleNamespace())
    grey = batches(channels=3, transforms=(RandomGrayscale(),))
    with pytest.raises(TypeError, match="RandomGrayscale.* is not geometric"):
        make_task(train=grey, files=False).pipeline("device").compile()
    with pytest.raises(ValueError, match="pipeline is 'gpu', expected one of auto, host, device"):
        make_task().pipeline("gpu")
