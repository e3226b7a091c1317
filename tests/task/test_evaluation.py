"""Validation over several views of a picture."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from small_data import CLASSES, batches

import renaissance as rn
from renaissance.task import TTA
from renaissance.task.evaluation import Evaluator, views
from renaissance.task.interrupt import StopOnInterrupt

IMAGES = jnp.arange(2 * 3 * 4 * 1, dtype=jnp.float32).reshape(2, 3, 4, 1)


@pytest.fixture(scope="module")
def program() -> rn.Program:
    model = rn.seq(rn.conv(4, 3, 1, 1), rn.bn(), rn.relu(), rn.flatten(), rn.fc(CLASSES))
    return rn.compile(model, (6, 6, 1), 8, ema=0.5, loss=rn.CrossEntropy(0.1))


def held_out():
    return batches(16, 8, shuffle=False, data=1).batches(0)


def test_one_view_unless_asked():
    (view,) = views(IMAGES, TTA.DISABLED)
    assert view is IMAGES


def test_left_right_adds_the_mirror_image():
    plain, mirrored = views(IMAGES, TTA.LR)
    assert np.array_equal(plain, IMAGES)
    assert np.array_equal(mirrored[0, 0, :, 0], [3, 2, 1, 0])


def test_shifts_go_one_pixel_each_way_and_repeat_the_edge():
    plain, up, down, left, right = (np.asarray(v)[0, :, :, 0] for v in views(IMAGES, TTA.SHIFT_1PX))
    assert plain.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert up.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11], [8, 9, 10, 11]]
    assert down.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert left.tolist() == [[1, 2, 3, 3], [5, 6, 7, 7], [9, 10, 11, 11]]
    assert right.tolist() == [[0, 0, 1, 2], [4, 4, 5, 6], [8, 8, 9, 10]]


@pytest.mark.parametrize("ema", [False, True])
def test_the_scores_of_one_view_are_those_of_the_program(program, ema):
    state = program.init(1)
    direct = Evaluator(program).scores(state, held_out(), ema=ema)
    averaged = Evaluator(program)._averaged(state, held_out(), ema)
    assert averaged.loss == pytest.approx(direct.loss, rel=1e-5)
    assert (averaged.top1, averaged.top5, averaged.samples) == (
        direct.top1,
        direct.top5,
        direct.samples,
    )


@pytest.mark.parametrize("tta", [TTA.LR, TTA.SHIFT_1PX])
def test_logits_are_averaged_over_the_views(program, tta):
    state = program.init(1)
    params, statistics = program.params(state), program.statistics(state)
    hits = count = 0
    for images, labels in held_out():
        outputs = [program.apply(params, v, statistics) for v in views(jnp.asarray(images), tta)]
        hits += int((sum(outputs).argmax(1) == labels).sum())
        count += len(labels)
    scores = Evaluator(program, tta).scores(state, held_out())
    assert (scores.top1, scores.samples) == (pytest.approx(hits / count), count)


@pytest.mark.parametrize("tta", [TTA.DISABLED, TTA.LR])
def test_part_of_a_set_is_no_score(program, tta):
    stop = StopOnInterrupt()

    def interrupted():
        for batch in held_out():
            yield batch
            stop.requested = True

    assert Evaluator(program, tta).scores(program.init(1), interrupted(), stop=stop) is None
