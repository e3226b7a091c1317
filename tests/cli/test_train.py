"""``renaissance train``: the demonstration, other data, wrong input, Ctrl-C."""

from __future__ import annotations

import argparse
import gzip
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from renaissance import data, models
from renaissance.cli import main
from renaissance.cli.datasets import detect, even_batch, transforms_for
from renaissance.cli.recipes import OPTIMIZERS, SCHEDULERS, make_optimizer, make_scheduler
from renaissance.cli.train import make_model
from renaissance.data import write_cifar, write_dts, write_idx
from renaissance.data.dataset import ArrayDataset
from renaissance.task import read_metrics


def best_top1(text: str) -> float:
    last = text.splitlines()[-1]
    assert last.startswith("best top-1 ")
    return float(last.split()[2])


def digest(text: str) -> str:
    return next(line.split()[-1] for line in text.splitlines() if "SHA-256" in line)


def blocks(count: int, side: int, channels: int) -> ArrayDataset:
    generator = np.random.default_rng(count)
    labels = generator.integers(0, 3, count)
    images = generator.integers(0, 99, (count, side, side, channels))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 90
    return ArrayDataset(images.astype(np.uint8), labels, 10)


def write_mnist(folder: Path, *, labels: int = 96, gz: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    end = ".gz" if gz else ""
    for prefix, count in (("train", 96), ("t10k", 40)):
        split = blocks(count, 8, 1)
        write_idx(folder / f"{prefix}-images-idx3-ubyte{end}", split.images[..., 0])
        kept = labels if prefix == "train" else count
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{end}", split.labels[:kept].astype(np.uint8))
    return folder


# -- the demonstration ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_digits_are_learned_from_any_seed(seed, capsys, tmp_path):
    arguments = ["--epochs", "10", "--seed", str(seed), "--runs", str(tmp_path)]
    assert main(["train", "digits", *arguments]) == 0
    assert best_top1(capsys.readouterr().out) >= 97.0
    assert len(read_metrics(tmp_path / "digits" / "metrics.csv")) == 10


def test_the_same_seed_prints_the_same_hash(capsys):
    digests = []
    for seed in (3, 3, 4):
        assert main(["train", "digits", "--epochs", "3", "--seed", str(seed), "--no-files"]) == 0
        digests.append(digest(capsys.readouterr().out))
    assert digests[0] == digests[1] != digests[2]


def test_every_option_reaches_the_task(capsys, tmp_path):
    recipe = "--batch 479 --lr 1e-3 --weight-decay 0 --smoothing 0.1 --warmup 1 --grad-clip 1"
    more = "--ema 0.9 --sema --tta lr --validate-every 2 --optimizer nesterov --scheduler wsd"
    where = f"--name trial --runs {tmp_path} --save-best --cpu --tf32 --info train"
    assert main(["train", "digits", "--epochs", "3", *f"{recipe} {more} {where}".split()]) == 0
    text = capsys.readouterr().out
    assert "best EMA top-1" in text
    assert "OPTIMIZER" in text and "softmax_cross_entropy1" not in text
    assert (tmp_path / "trial" / "best.npz").exists()
    config = (tmp_path / "trial" / "config.json").read_text()
    for words in ("nesterov=True", "WSD(", "label_smoothing=0.1", "max_abs=1", '"tta": "<TTA.LR'):
        assert words in config
    assert [r.val_top1 is not None for r in read_metrics(tmp_path / "trial" / "metrics.csv")] == [
        False,
        True,
        True,
    ]


def test_quiet_prints_nothing_and_a_dry_run_trains_nothing(capsys, tmp_path):
    arguments = ["train", "digits", "--epochs", "10"]
    assert main([*arguments, "--quiet", "--no-files"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*arguments, "--dry-run", "--runs", str(tmp_path)]) == 0
    assert "dry run: train step 32x8x8x1" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_by_name(name):
    assert make_optimizer(name, 0.25).weight_decay == 0.25


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules_by_name(name):
    schedule = make_scheduler(name, 0.5, 1)
    assert (schedule.base_lr, schedule.warmup) == (0.5, 1)


# -- data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gz", [False, True])
def test_idx_files_train_gzipped_or_not(capsys, tmp_path, gz):
    folder = write_mnist(tmp_path / "mnist", gz=gz)
    arguments = ["--data", str(folder), "--epochs", "4", "--batch", "16", "--no-files"]
    assert main(["train", "mlp", *arguments]) == 0
    assert best_top1(capsys.readouterr().out) > 50


def test_formats_are_recognised_by_their_files(tmp_path):
    colour = blocks(20, 32, 3)
    for name in ("idx", "dts", "cifar10", "cifar100", "folders"):
        (tmp_path / name).mkdir()
    write_mnist(tmp_path / "idx")
    write_dts(tmp_path / "dts" / "train.dts", colour, is_training=True)
    write_cifar(tmp_path / "cifar10" / "data_batch_1.bin", colour)
    (tmp_path / "cifar100" / "train.bin").write_bytes(b"")
    (tmp_path / "folders" / "train").mkdir()
    found = {p.name: detect(p) for p in tmp_path.iterdir()}
    assert found == {
        "idx": "mnist",
        "dts": "dts",
        "cifar10": "cifar10",
        "cifar100": "cifar100",
        "folders": "folder",
    }


def test_dts_files_train_too_with_shifts_and_mirrors(capsys, tmp_path):
    for split, count in (("train", 60), ("val", 20)):
        write_dts(tmp_path / f"{split}.dts", blocks(count, 8, 3), is_training=split == "train")
    arguments = ["--data", str(tmp_path), "--epochs", "1", "--batch", "20", "--no-files"]
    assert main(["train", "mlp", "--augment", *arguments]) == 0
    assert best_top1(capsys.readouterr().out) >= 0


def test_augmentation_suits_the_network_and_the_pictures():
    colour, grey = blocks(20, 32, 3), blocks(20, 28, 1)
    flip, erase = data.RandomHorizontalFlip(), data.RandomErasing(0.5)
    train, val = transforms_for(colour, None, augment=True, digits=False)
    assert train == (data.Pad(4), data.RandomCrop((32, 32)), flip)
    assert val == ()
    assert flip not in transforms_for(grey, None, augment=True, digits=False)[0]
    digits = transforms_for(grey, None, augment=True, digits=True)[0]
    assert (len(digits), digits[:2], digits[-1]) == (5, (data.Pad(2), data.RandomCrop(28)), erase)
    assert transforms_for(grey, None, augment=False, digits=True) == ((), ())
    resized = transforms_for(colour, 16, augment=False, digits=False)
    assert resized == ((data.Resize((16, 16)),),) * 2


@pytest.mark.parametrize(("side", "stem"), [(32, "cifar"), (224, "imagenet")])
def test_small_pictures_get_the_small_stem(side, stem):
    options = argparse.Namespace(network="resnet18", stem="auto")
    expected = models.resnet18(num_classes=7, stem=stem)
    assert make_model(options, (side, side, 3), 7) == expected


@pytest.mark.parametrize(
    ("samples", "limit", "expected"), [(360, 200, 180), (10000, 200, 200), (20, 200, 20), (7, 3, 3)]
)
def test_validation_batches_are_nearly_equal(samples, limit, expected):
    assert even_batch(samples, limit) == expected


def test_the_pipeline_of_the_device_trains_to_the_same_hash(capsys):
    found = []
    for pipeline in ("host", "device"):
        arguments = ["--augment", "--epochs", "2", "--no-files", "--pipeline", pipeline]
        assert main(["train", "digits", *arguments]) == 0
        found.append(digest(capsys.readouterr().out))
    assert found[0] == found[1]


# -- wrong input ----------------------------------------------------------------------------------


def error_of(capsys, *arguments: str) -> str:
    assert main(["train", *arguments, "--no-files"]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("renaissance: error: ")
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits", "--epochs", "0"], "total_epochs is 0"),
        (["digits", "--batch", "0"], "batch_size is 0"),
        (["digits", "--batch", "9999"], "batch_size is 9999, expected at most 1437"),
        (["digits", "--seed", "-1"], "seed is -1"),
        (["digits", "--lr", "-1"], "base_lr is -1"),
        (["digits", "--warmup", "9", "--epochs", "3"], "warmup is 9.0, expected at most the 3"),
        (["digits", "--smoothing", "1"], "label_smoothing is 1.0"),
        (["digits", "--ema", "1"], "sema_decay is 1.0"),
        (["digits", "--target", "98"], "98 % is 0.98"),
        (["digits", "--data", "x"], "digits brings its own data"),
        (["digits", "--gpu", "63"], "use_gpu is 63"),
        (["digits", "--resume", "/no/such.npz"], "/no"),
        (["digits", "--freeze-first-layer-after", "1"], "first_layer_frozen"),
        (["mlp"], "--data is None, expected a directory with pictures for mlp"),
        (["mlp", "--data", "/no/such"], "/no/such: no such directory"),
        (["mlp", "--data", "/", "--stem", "cifar"], "expected IDX files"),
    ],
)
def test_wrong_options_are_one_clear_sentence(capsys, arguments, words):
    assert words in error_of(capsys, *arguments)


def test_broken_idx_files_say_what_is_wrong(capsys, tmp_path):
    folder = write_mnist(tmp_path / "mnist")
    images = folder / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-10])
    text = error_of(capsys, "mlp", "--data", str(folder))
    assert str(len(whole)) in text and str(len(whole) - 10) in text
    images.write_bytes(b"\0\0\x0d" + whole[3:])
    assert "magic" in error_of(capsys, "mlp", "--data", str(folder))
    images.write_bytes(whole + b"more")
    assert "train-images-idx3-ubyte" in error_of(capsys, "mlp", "--data", str(folder))
    images.unlink()
    assert "train-images-idx3-ubyte" in error_of(capsys, "mlp", "--data", str(folder))


def test_a_gzipped_file_named_raw_is_read(capsys, tmp_path):
    folder = write_mnist(tmp_path / "mnist")
    images = folder / "train-images-idx3-ubyte"
    images.write_bytes(gzip.compress(images.read_bytes()))
    arguments = ["--data", str(folder), "--epochs", "4", "--batch", "16", "--no-files"]
    assert main(["train", "mlp", *arguments, "--dry-run"]) == 0
    capsys.readouterr()


def test_counts_and_labels_are_checked(capsys, tmp_path):
    folder = write_mnist(tmp_path / "mnist", labels=90)
    text = error_of(capsys, "mlp", "--data", str(folder))
    assert "96" in text and "90" in text
    labels = np.full(96, 10, np.uint8)
    write_idx(folder / "train-labels-idx1-ubyte", labels)
    assert "label of sample 0 is 10, expected 0 to 9" in error_of(
        capsys, "mlp", "--data", str(folder)
    )


# -- Ctrl-C ---------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_measured_and_exits_with_130(tmp_path):
    command = [sys.executable, "-m", "renaissance", "train", "digits", "--epochs", "1000"]
    with subprocess.Popen(
        [*command, "--runs", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.split()[:1] == ["2/1000"]:
                break
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
        code = process.wait()
        watchdog.cancel()
    assert code == 130, errors
    assert "stopping after the current step" in errors
    assert "Traceback" not in errors
    assert rest.splitlines()[-1].startswith("best top-1 ")
    records = read_metrics(tmp_path / "digits" / "metrics.csv")
    assert [r.epoch for r in records] == list(range(1, len(records) + 1))
    assert len(records) >= 2
    assert (tmp_path / "digits" / "config.json").exists()
