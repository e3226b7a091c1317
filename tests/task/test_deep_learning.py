"""A whole training: what it returns, what it leaves behind, and that it repeats bit for bit."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from small_data import CLASSES, batches

import renaissance as rn
from renaissance.core.errors import PhaseError, TrainingDiverged
from renaissance.core.settings import Settings
from renaissance.core.types import Phase
from renaissance.data import loader
from renaissance.runtime import library
from renaissance.task import (
    CompileInfo,
    TrainingInterrupted,
    load_checkpoint,
    read_metrics,
    save_checkpoint,
)


def convolutional():
    return rn.seq(rn.conv(4, 3, 1, 1), rn.bn(), rn.relu(), rn.gap(), rn.fc(CLASSES))


def large() -> dict:
    return {"train": batches(side=12), "val": batches(16, 8, shuffle=False, side=12, data=1)}


def weights(path) -> dict[str, np.ndarray]:
    tensors = load_checkpoint(path).tensors
    return {k: v for k, v in tensors.items() if k.startswith("W_")}


# -- what a run returns and leaves -----------------------------------------------------------------


def test_a_training_learns_and_says_how_well(make_task, tmp_path, capsys):
    result = make_task("blocks", quiet=False).compile().run()
    assert result.best_top1 >= 0.9
    assert result.best_top5 == 1.0
    assert [r.epoch for r in result.records] == [1, 2, 3, 4]
    assert all((r.steps, r.samples, r.complete) == (3, 48, True) for r in result.records)
    assert result.records[-1].train_loss < result.records[0].train_loss
    assert result.best_epoch == 1 + np.argmax([r.val_top1 for r in result.records])
    assert (result.best_ema_top1, result.interrupted, result.stopped_early) == (None, False, False)

    lines = capsys.readouterr().out.splitlines()
    table = lines.index(next(line for line in lines if line.startswith("epoch")))
    assert any("fc1" in line for line in lines[:table])  # the plan comes before the training
    assert [line.split()[0] for line in lines[table + 1 : table + 5]] == [
        "1/4",
        "2/4",
        "3/4",
        "4/4",
    ]
    assert f"parameters SHA-256 {result.sha256}" in lines
    assert lines[-1].startswith(f"best top-1 {100 * result.best_top1:.2f} %")

    directory = tmp_path / "runs" / "blocks"
    assert tuple(read_metrics(directory / "metrics.csv")) == result.records
    config = json.loads((directory / "config.json").read_text())
    assert config["settings"]["seed"] == 1
    assert config["options"]["total_epochs"] == 4
    assert config["train"]["samples"] == 48
    assert config["model"]["parameters"] == 6 * 6 * 8 + 8 + 8 * 3 + 3


def test_the_same_seed_gives_the_same_bits_another_seed_does_not(make_task):
    def digest(seed: int) -> str:
        settings = Settings().manual_seed(seed)
        return make_task(settings=settings).compile(CompileInfo.NONE).run().sha256

    first = digest(3)
    assert len(first) == 64
    assert digest(3) == first
    assert digest(4) != first


def test_a_second_run_of_a_task_repeats_the_first(make_task, tmp_path):
    task = make_task().compile()
    assert task.run().sha256 == task.run().sha256
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["t", "t-2"]


def test_without_a_runs_directory_nothing_is_written(make_task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_task(files=False).compile().run()
    assert not list(tmp_path.iterdir())


def test_last_batches_that_are_not_full_count_as_what_they_are(make_task):
    # three epochs of four steps: as many as the other trainings here
    task = make_task(train=batches(50), epochs=3)
    records = task.compile(CompileInfo.NONE).run().records
    assert [(r.steps, r.samples, r.complete) for r in records] == [(4, 50, True)] * 3


def test_compile_prints_the_plans_it_is_asked_for(make_task, capsys):
    task = make_task(quiet=False).sema_decay(0.9)
    task.compile(CompileInfo.MEMORY_PLAN | CompileInfo.TRAIN_GRAPH | CompileInfo.INFER_GRAPH)
    text = capsys.readouterr().out
    for words in ("W_FC_WEIGHT", "DEEP_FWD_BWD", "optimizer_update", "INF_EMA_A"):
        assert words in text
    assert "total " in text and "persistent bank" in text
    assert "parameters" not in text  # the architecture was not asked for
    with pytest.raises(TypeError, match=r"expected flags such as CompileInfo\.ARCH_PLAN"):
        make_task().compile("all")


def test_listeners_hear_of_every_epoch(make_task):
    heard = []
    result = make_task().on_epoch(heard.append).compile().run()
    assert tuple(heard) == result.records


def test_a_dry_run_times_every_shape_and_leaves_nothing(make_task, tmp_path, capsys):
    make_task(quiet=False).sema_decay(0.9).compile(CompileInfo.NONE).dry_run()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "dry run: train step 16x6x6x1",
        "dry run: validation 8x6x6x1",
        "dry run: validation, EMA 8x6x6x1",
    ]
    assert all(line.endswith(" ms") for line in lines)
    assert not (tmp_path / "runs").exists()


# -- validation ------------------------------------------------------------------------------------


def test_epochs_without_validation_have_no_scores(make_task):
    records = make_task().validate_every(3).compile().run().records
    assert [r.val_top1 is not None for r in records] == [False, False, True, True]


def test_a_task_without_validation_data_has_no_best(make_task):
    result = make_task(validate=False).compile().run()
    assert (result.best_top1, result.best_epoch) == (None, None)
    assert len(result.records) == 4


def test_the_target_ends_the_training(make_task):
    result = make_task().early_stop_by_top1(0.5).compile().run()
    assert result.stopped_early
    assert len(result.records) < 4
    assert result.best_top1 >= 0.5
    assert result.best_epoch == len(result.records)


def test_averaged_weights_are_validated_beside_the_main_ones(make_task):
    result = make_task().sema_decay(0.9).compile().run()
    assert result.best_ema_top1 is not None
    assert all(r.ema_loss != r.val_loss for r in result.records)


def test_switching_changes_the_training_from_the_second_epoch_on(make_task):
    plain = make_task().sema_decay(0.9).compile().run().records
    switched = make_task().sema_decay(0.9).use_sema().compile().run().records
    assert switched[0].train_loss == plain[0].train_loss
    assert switched[1].train_loss != plain[1].train_loss


# -- the first layer, the resolution ---------------------------------------------------------------


def test_a_frozen_first_layer_stands_still_and_the_others_do_not(make_task, tmp_path):
    task = make_task(model=convolutional(), **large()).freeze_first_layer_after(1)
    for epoch in (1, 4):
        task.save_model_at_epoch(epoch, tmp_path / f"{epoch}.npz")
    task.compile().run()
    before, after = (weights(tmp_path / f"{epoch}.npz") for epoch in (1, 4))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == set(before) - {"W_FIRST_CONV/conv1.weight"}


@pytest.mark.parametrize("how", ["progressive_crop", "progressive_resize"])
def test_a_progressive_training_begins_with_smaller_pictures(make_task, how, capsys):
    settings = Settings().train_resolution((8, 12))
    task = make_task(settings=settings, model=convolutional(), quiet=False, **large())
    getattr(task, how)(1)
    result = task.compile(CompileInfo.NONE).dry_run().run()
    assert len(result.records) == 4
    steps = [line for line in capsys.readouterr().out.splitlines() if "train step" in line]
    assert [line.split()[4] for line in steps] == ["16x8x8x1", "16x12x12x1"]


def test_mixed_precision_trains_too(make_task):
    settings = Settings().amp()
    data = {"train": batches(dtype=np.float16), "val": batches(16, 8, data=1, dtype=np.float16)}
    records = make_task(settings=settings, **data).compile().run().records
    assert records[-1].train_loss < 0.8 * records[0].train_loss


@pytest.mark.skipif(not library.status().custom_calls, reason="no native library")
def test_both_lowerings_train_alike_and_read_each_others_checkpoints(make_task, tmp_path):
    losses, paths = {}, {}
    for name in ("fused", "xla"):
        paths[name] = tmp_path / f"{name}.npz"
        task = make_task().sema_decay(0.9).lowering(name).save_model_at_epoch(2, paths[name])
        losses[name] = [r.train_loss for r in task.compile().run().records]
    np.testing.assert_allclose(losses["fused"], losses["xla"], rtol=1e-4)
    for name, other in (("fused", "xla"), ("xla", "fused")):
        task = make_task().sema_decay(0.9).lowering(name).resume(paths[other])
        rest = [r.train_loss for r in task.compile().run().records]
        np.testing.assert_allclose(rest, losses["xla"][2:], rtol=1e-4)


def test_freezing_and_the_fused_lowering_do_not_go_together_yet(make_task):
    task = make_task(model=convolutional(), **large()).freeze_first_layer_after(1)
    with pytest.raises(ValueError, match="lowering is 'fused', expected 'xla' or 'auto'"):
        task.lowering("fused").compile()


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_resumed_training_ends_with_the_same_bits(make_task, tmp_path):
    path = tmp_path / "half.npz"
    whole = make_task().sema_decay(0.9).save_model_at_epoch(2, path).compile().run()
    rest = make_task().sema_decay(0.9).resume(path).compile().run()
    assert [r.epoch for r in rest.records] == [3, 4]
    assert rest.sha256 == whole.sha256


def test_a_resumed_training_does_not_overwrite_a_better_model(make_task, tmp_path):
    half, best = tmp_path / "half.npz", tmp_path / "best.npz"
    make_task().sema_decay(0.9).save_model_at_epoch(2, half).save_best_model(best).compile().run()
    checkpoint = load_checkpoint(half)
    save_checkpoint(
        half, checkpoint.restore(initial_state(make_task)), epoch=2, extra={"best_top1": 2.0}
    )
    before = best.read_bytes()
    make_task().sema_decay(0.9).resume(half).save_best_model(best).compile().run()
    assert best.read_bytes() == before


def initial_state(make_task):
    task = make_task().sema_decay(0.9)
    task.finalize_memory()
    return task.program.init(0)


def test_a_checkpoint_of_another_plan_is_refused_before_training(make_task, tmp_path):
    path = tmp_path / "a.npz"
    make_task().save_model_at_epoch(1, path).compile().run()
    task = make_task(model=convolutional(), **large()).resume(path).compile()
    with pytest.raises(ValueError, match=r"no tensor .*, expected float32\[4\]"):
        task.run()
    assert not (tmp_path / "runs" / "t-2").exists()


def test_a_finished_training_cannot_be_resumed(make_task, tmp_path):
    make_task().save_model_at_epoch(4, tmp_path / "a.npz").compile().run()
    task = make_task().resume(tmp_path / "a.npz").compile()
    with pytest.raises(ValueError, match="written after epoch 4"):
        task.run()


def test_models_are_kept_where_they_were_asked_for(make_task, tmp_path):
    task = make_task().save_model_at_epoch(2).save_best_model()
    result = task.compile().run()
    directory = tmp_path / "runs" / "t"
    assert load_checkpoint(directory / "epoch-2.npz").epoch == 2
    assert load_checkpoint(directory / "best.npz").epoch == result.best_epoch


# -- wrong calls, wrong data -----------------------------------------------------------------------


def test_running_before_compiling_says_what_to_do(make_task):
    task = make_task()
    for call in (task.run, task.dry_run):
        with pytest.raises(PhaseError, match=r"in phase PLANNING.*call compile\(\) first"):
            call()


def test_configuring_after_compiling_is_refused(make_task):
    settings = Settings()
    task = make_task(settings=settings).compile()
    assert task.phase is Phase.COMPILED
    for call in (
        lambda: task.loss(rn.CrossEntropy()),
        lambda: task.data(batches()),
        lambda: task.on_epoch(print),
        lambda: task.finalize_memory(),
    ):
        with pytest.raises(PhaseError, match="in phase COMPILED"):
            call()
    with pytest.raises(PhaseError, match="compile came in phase COMPILED"):
        task.compile()
    with pytest.raises(PhaseError, match="task 't' uses the settings"):
        settings.manual_seed(2)


def test_memory_can_be_locked_first(make_task):
    task = make_task()
    task.finalize_memory()
    assert task.phase is Phase.MEMORY_LOCKED
    with pytest.raises(PhaseError, match="MEMORY_LOCKED"):
        task.total_epochs(3)
    task.compile().run()


def test_a_failed_compile_leaves_the_task_in_planning(make_task):
    task = make_task(model=rn.seq(rn.flatten(), rn.fc(CLASSES + 1)))
    with pytest.raises(ValueError, match=r"num_classes"):
        task.compile()
    assert task.phase is Phase.PLANNING
    task.model(rn.seq(rn.flatten(), rn.fc(8), rn.relu(), rn.fc(CLASSES))).compile()


@pytest.mark.parametrize("missing", ["model", "data"])
def test_what_is_missing_is_named(missing):
    task = rn.DeepLearningTask("t", runs=None)
    if missing == "data":
        task.model(rn.fc(3))
    with pytest.raises(ValueError, match=rf"{missing} is None, expected a call of {missing}\("):
        task.compile()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings().train_resolution(7), "size of the training pictures is '6x6', expected 7x7"),
        (Settings().val_resolution(7), "size of the validation pictures is '6x6', expected 7x7"),
        (Settings().train_resolution((4, 6)), "progressive_crop"),
        (Settings().local_batch_size(8), "batch size of the training data is 16, expected 8"),
    ],
)
def test_data_that_do_not_fit_the_settings_are_refused(make_task, settings, words):
    with pytest.raises(ValueError, match=words):
        make_task(settings=settings).compile()


def test_a_progression_needs_two_resolutions(make_task):
    with pytest.raises(ValueError, match="train_resolution is None, expected a pair"):
        make_task().progressive_crop(1).compile()
    settings = Settings().train_resolution((8, 6))
    with pytest.raises(ValueError, match="begin no larger than its end"):
        make_task(settings=settings).progressive_crop(1).compile()


def test_training_and_validation_data_must_agree(make_task):
    with pytest.raises(ValueError, match="channels of the validation pictures is 3"):
        make_task(val=batches(16, 8, channels=3)).compile()


def test_data_must_be_loaders(make_task):
    for wrong in (None, [1, 2], np.zeros((4, 6, 6, 1))):
        with pytest.raises(TypeError, match=r"training data is .*rn\.data\.loader"):
            rn.DeepLearningTask("t").data(wrong)


def test_what_needs_validation_data_says_so(make_task):
    with pytest.raises(ValueError, match="early_stop_by_top1"):
        make_task(validate=False).early_stop_by_top1(0.5).compile()
    with pytest.raises(ValueError, match="save_best_model"):
        make_task(validate=False).save_best_model().compile()


def test_a_gpu_that_is_not_there_is_named(make_task):
    settings = Settings().use_gpu(63)
    with pytest.raises(ValueError, match="use_gpu is 63, expected a GPU that jax sees"):
        make_task(settings=settings).compile()


def test_a_batch_larger_than_the_data_set_is_refused():
    with pytest.raises(ValueError, match="batch_size is 60, expected at most 48"):
        batches(48, 60)


class Poisoned:
    """A loader whose pictures are infinite."""

    def __init__(self) -> None:
        self.dataset = batches().dataset
        self.batch_size = 1
        self.image_shape = (6, 6, 1)

    def __len__(self) -> int:
        return 48

    def batches(self, epoch: int):
        for images, labels in loader(self.dataset, batch_size=1).batches(epoch):
            yield np.full_like(images, np.inf), labels


def test_a_training_that_only_overflows_stops_with_a_clear_error(make_task):
    task = make_task(train=Poisoned(), validate=False).compile()
    with pytest.raises(TrainingDiverged, match="50 steps in a row"):
        task.run()


# -- a preprocessor instead of loaders -------------------------------------------------------------


def digits_task(settings: Settings) -> rn.DeepLearningTask:
    task = rn.DeepLearningTask("digits", settings, runs=None, quiet=True)
    return task.data(rn.Preprocessor().dataset("digits").commit()).model(
        rn.seq(rn.flatten(), rn.fc(10))
    )


def test_a_preprocessor_gets_batch_size_seed_and_precision_from_the_settings():
    task = digits_task(Settings().local_batch_size(479, val=180).manual_seed(9).amp())
    task.finalize_memory()
    shapes = [task.program.config.shapes(training) for training in (True, False)]
    assert [[tuple(s) for s in group] for group in shapes] == [[(479, 8, 8, 1)], [(180, 8, 8, 1)]]
    train = task._built("test").train
    assert (train.seed, train.preparation.dtype) == (9, np.float16)


def test_a_preprocessor_needs_a_batch_size():
    with pytest.raises(
        ValueError, match=r"batch size is None, expected a call of local_batch_size"
    ):
        digits_task(Settings()).compile()


def test_an_uncommitted_preprocessor_says_so():
    task = rn.DeepLearningTask("digits", Settings().local_batch_size(8), runs=None)
    task.data(rn.Preprocessor().dataset("digits")).model(rn.fc(10))
    with pytest.raises(PhaseError, match=r"call commit\(\) first"):
        task.compile()


# -- Ctrl-C ----------------------------------------------------------------------------------------


class Interrupting:
    """A loader that presses Ctrl-C before the second batch of the second epoch."""

    def __init__(self) -> None:
        self._inner = batches()
        self.dataset, self.batch_size = self._inner.dataset, self._inner.batch_size
        self.image_shape = self._inner.image_shape

    def __len__(self) -> int:
        return len(self._inner)

    def batches(self, epoch: int):
        for number, batch in enumerate(self._inner.batches(epoch)):
            if (epoch, number) == (1, 1):
                os.kill(os.getpid(), signal.SIGINT)
            yield batch


def test_ctrl_c_finishes_the_step_and_keeps_what_was_measured(make_task, tmp_path):
    task = make_task(train=Interrupting()).save_best_model().compile()
    with pytest.raises(TrainingInterrupted) as stopped:
        task.run()
    assert stopped.value.code == 130
    result = stopped.value.result
    assert result.interrupted
    assert [(r.epoch, r.steps, r.complete) for r in result.records] == [(1, 3, True), (2, 2, False)]
    assert result.records[1].samples == 32
    assert result.records[1].val_top1 is None
    directory = tmp_path / "runs" / "t"
    assert tuple(read_metrics(directory / "metrics.csv")) == result.records
    assert load_checkpoint(directory / "best.npz").epoch == 1
    assert (directory / "config.json").exists()
