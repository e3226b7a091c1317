"""The chain of options: checked at once, noted in a frozen record, closed by compile."""

from __future__ import annotations

import pytest

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.algo.initializer import Zeros
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.optimizer import SGD, AdamW
from renaissance.algo.scheduler import Constant, CosineAnnealing
from renaissance.core.errors import PhaseError
from renaissance.graph.blueprint import BluePrint, fc, flatten, seq
from renaissance.task.chain import OptionChain
from renaissance.task.options import TTA, Progression, Progressive, TrainingOptions

MODEL = seq(flatten(), fc(10))


def chain() -> OptionChain:
    return OptionChain("t")


def test_every_call_notes_its_value():
    options = (
        chain()
        .model(MODEL)
        .loss(CrossEntropy(0.1))
        .initializer(Zeros(), zero_gamma=True)
        .optimizer(AdamW(weight_decay=0.1))
        .scheduler(CosineAnnealing(1e-3))
        .total_epochs(20)
        .num_classes(10)
        .validate_every(4, 2)
        .early_stop_by_top1(0.75)
        .use_sema()
        .sema_decay(0.99)
        .grad_clip(2.0)
        .tta(TTA.LR)
        .freeze_first_layer_after(3)
        .progressive_crop(5)
        .metrics("top1", "loss", "top1")
        .save_model_at_epoch(7)
        .save_best_model()
        .lowering("xla")
        .options
    )
    assert options == TrainingOptions(
        model=BluePrint(MODEL),
        loss=CrossEntropy(0.1),
        initializer=Zeros(),
        zero_gamma=True,
        optimizer=AdamW(weight_decay=0.1),
        scheduler=CosineAnnealing(1e-3),
        total_epochs=20,
        num_classes=10,
        validation_interval=4,
        validation_offset=2,
        target_top1=0.75,
        use_sema=True,
        ema_decay=0.99,
        clip=ClipByValue(2.0),
        tta=TTA.LR,
        freeze_first_layer_after=3,
        progressive=Progressive(Progression.CROP, 5),
        metrics=("top1", "loss"),
        save_epochs=((7, None),),
        save_best=True,
        lowering="xla",
    )


def test_clipping_by_norm_is_offered_too():
    assert chain().grad_clip(max_norm=1.0).options.clip == ClipByGlobalNorm(1.0)


@pytest.mark.parametrize(
    ("interval", "offset", "total", "expected"),
    [
        (1, 0, 4, [1, 2, 3, 4]),
        (3, 0, 7, [3, 6, 7]),
        (4, 2, 12, [2, 6, 10, 12]),
        (5, 1, 6, [1, 6]),
        (9, 0, 4, [4]),
    ],
)
def test_validation_epochs_are_counted_from_one(interval, offset, total, expected):
    options = chain().validate_every(interval, offset).total_epochs(total).options
    assert [e for e in range(1, total + 1) if options.validates(e)] == expected


def test_the_average_is_kept_with_a_decay_or_by_switching():
    assert chain().options.effective_ema_decay is None
    assert chain().use_sema().options.effective_ema_decay == 0.999
    assert chain().sema_decay(0.5).options.effective_ema_decay == 0.5


def test_freezing_and_small_pictures_by_epoch():
    options = chain().freeze_first_layer_after(2).progressive_resize(1).options
    assert [options.freezes(e) for e in (1, 2, 3)] == [False, False, True]
    assert [options.begins_small(e) for e in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda t: t.model("mlp"), TypeError, "model is 'mlp', expected such as rn.seq"),
        (lambda t: t.optimizer(SGD), TypeError, "an instance such as .*not the class"),
        (lambda t: t.optimizer("sgd"), TypeError, "optimizer is 'sgd'"),
        (lambda t: t.scheduler(0.1), TypeError, "scheduler is 0.1"),
        (lambda t: t.loss(None), TypeError, "loss is None"),
        (lambda t: t.initializer(3), TypeError, "initializer is 3"),
        (lambda t: t.total_epochs(0), ValueError, "total_epochs is 0"),
        (lambda t: t.total_epochs(2.5), TypeError, "total_epochs is 2.5"),
        (lambda t: t.num_classes(-1), ValueError, "num_classes is -1"),
        (lambda t: t.validate_every(0), ValueError, "interval is 0"),
        (lambda t: t.validate_every(1, -1), ValueError, "offset is -1"),
        (lambda t: t.early_stop_by_top1(98), ValueError, "98 % is 0.98"),
        (lambda t: t.sema_decay(1.0), ValueError, "sema_decay is 1.0"),
        (lambda t: t.use_sema(1), TypeError, "True or False"),
        (lambda t: t.grad_clip(), ValueError, "either max_abs or max_norm"),
        (lambda t: t.grad_clip(1.0, max_norm=1.0), ValueError, "either max_abs or max_norm"),
        (lambda t: t.grad_clip(-1.0), ValueError, "max_abs is -1.0"),
        (lambda t: t.tta("lr"), TypeError, "tta is 'lr', expected such as TTA.LR"),
        (lambda t: t.freeze_first_layer_after(-1), ValueError, "is -1"),
        (lambda t: t.progressive_crop(0), ValueError, "progressive_crop is 0"),
        (lambda t: t.metrics("auc"), ValueError, "metric is 'auc', expected one of loss"),
        (lambda t: t.metrics(), ValueError, "at least one"),
        (lambda t: t.save_model_at_epoch(0), ValueError, "is 0"),
        (lambda t: t.save_model_at_epoch(1, "/no/where/a.npz"), FileNotFoundError, "/no/where"),
        (lambda t: t.save_best_model("/no/where/a.npz"), FileNotFoundError, "/no/where"),
        (lambda t: t.resume("/no/where/a.npz"), FileNotFoundError, "/no/where"),
    ],
)
def test_a_wrong_value_is_named_and_changes_nothing(call, error, words):
    task = chain()
    with pytest.raises(error, match=words):
        call(task)
    assert task.options == TrainingOptions()


def test_an_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'label_smothing'"):
        CrossEntropy(label_smothing=0.1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'norm'"):
        chain().grad_clip(norm=1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.save_model_at_epoch(9), "save_model_at_epoch is 9"),
        (lambda t: t.freeze_first_layer_after(9), "freeze_first_layer_after is 9"),
        (lambda t: t.progressive_crop(9), "progressive resolution is 9"),
        (lambda t: t.validate_every(1, 9), "offset is 9"),
        (lambda t: t.scheduler(Constant(0.1, warmup=9)), "warmup is 9"),
    ],
)
def test_an_epoch_beyond_the_last_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(chain()).total_epochs(5).options.check_epochs()


def test_after_planning_the_chain_is_closed():
    task = chain()
    task.finalize_memory()
    with pytest.raises(PhaseError, match=r"total_epochs came in phase MEMORY_LOCKED"):
        task.total_epochs(3)


def test_options_are_plain_values_for_a_file():
    plain = chain().model(MODEL).total_epochs(3).options.as_dict()
    assert plain["total_epochs"] == 3
    assert "fc(10" in plain["model"]
