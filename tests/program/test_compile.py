"""What compile() accepts, and what it says when it does not."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.errors import ShapeError
from tests.program.support import SHAPE, random_batch, small_net, small_program


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((6, 6), 8), {}, r"input_shape is \(6, 6\), expected three integers"),
        (((6, 0, 3), 8), {}, r"input_shape\[1\] is 0, expected an integer >= 1"),
        ((SHAPE, 0), {}, "batch is 0"),
        ((SHAPE, 8), {"last_batch_size": 9}, "last_train_batch is 9"),
        ((SHAPE, 8), {"epochs": 0}, "epochs is 0"),
        ((SHAPE, 8), {"ema": 1.0}, "ema is 1.0"),
        ((SHAPE, 8), {"lowering": "fast"}, "lowering is 'fast', expected one of"),
        ((SHAPE, 8), {"num_classes": 4}, "4"),
        ((SHAPE, 8), {"amp": True, "precision": "fp32"}, "precision is 'fp32'"),
        ((SHAPE, 8), {"precision": "fp64"}, "jax_enable_x64"),
        ((SHAPE, 8), {"scheduler": rn.Constant(0.1, warmup=5), "epochs": 2}, "warmup is 5"),
    ],
)
def test_a_wrong_argument_fails_at_once(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rn.compile(small_net(), *arguments, **options)


def test_a_layer_that_does_not_fit_is_named() -> None:
    with pytest.raises(ShapeError, match="conv2"):
        rn.compile(rn.seq(rn.conv(4, 3), rn.conv(4, 5)), (4, 4, 1), 2)


def test_a_batch_of_another_shape_is_refused() -> None:
    program = small_program()
    state = program.init(0)
    images, labels = random_batch(0, 7)
    with pytest.raises(ValueError, match=r"images is \(7, 6, 6, 3\), expected \(8, 6, 6, 3\)"):
        program.train_step(state, (images, labels))
    images, labels = random_batch(0)
    with pytest.raises(ValueError, match=r"labels is \(7,\), expected \(8,\)"):
        program.train_step(state, (images, labels[:7]))
    with pytest.raises(TypeError, match="expected a tuple"):
        program.train_step(state, images)
    with pytest.raises(ValueError, match=r"shapes of batches .* expected \(S, N, H, W, C\)"):
        program.train_steps(state, (images, labels))


def test_a_batch_of_another_kind_is_refused() -> None:
    program = small_program()
    state = program.init(0)
    images, labels = random_batch(0)
    with pytest.raises(TypeError, match="dtype of images is 'uint8', expected floats"):
        program.train_step(state, (images.astype(np.uint8), labels))
    with pytest.raises(TypeError, match="dtype of labels is 'float32', expected integers"):
        program.evaluate(state, (images, jax.numpy.asarray(labels, np.float32)))
    state, _ = program.train_step(state, (jax.numpy.asarray(images, jax.numpy.bfloat16), labels))
    state.check_alive()


def test_a_batch_that_passed_lets_no_other_pass() -> None:
    program = small_program()
    images, labels = random_batch(0)
    on_device = jax.device_put(images), jax.device_put(labels)
    state, _ = program.train_step(program.init(0), on_device)
    state, _ = program.train_step(state, on_device)
    with pytest.raises(ValueError, match=r"labels is \(7,\), expected \(8,\)"):
        program.train_step(state, (on_device[0], on_device[1][:7]))
    with pytest.raises(TypeError, match="dtype of images is 'int32', expected floats"):
        program.train_step(state, (on_device[0].astype(np.int32), on_device[1]))
    with pytest.raises(ValueError, match="label at row 3 is 5"):
        program.train_step(state, (on_device[0], np.where(np.arange(8) == 3, 5, labels)))
    with pytest.raises(TypeError, match="expected a tuple"):
        program.train_step(state, list(on_device))
    state.check_alive()


@pytest.mark.parametrize("wrong", [-1, 5, 99])
def test_a_label_outside_the_classes_is_refused(wrong: int) -> None:
    program = small_program()
    images, labels = random_batch(0)
    labels[3] = wrong
    with pytest.raises(ValueError, match=rf"label at row 3 is {wrong}, expected .* \[0, 4\]"):
        program.train_step(program.init(0), (images, labels))


def test_a_state_that_was_given_up_is_named() -> None:
    program = small_program()
    old = program.init(0)
    program.train_step(old, random_batch(0))
    with pytest.raises(ValueError, match=r"state tensor \w+\['.*'\] was given to an earlier"):
        program.train_step(old, random_batch(1))
    with pytest.raises(ValueError, match="use the state that step returned"):
        program.params(old)


def test_missing_parameters_are_named() -> None:
    program = small_program()
    params = program.params(program.init(0))
    del params["bn1.bias"]
    with pytest.raises(ValueError, match="also 'bn1.bias'"):
        program.apply(params, random_batch(0)[0], train=True)


def test_ema_weights_need_an_ema() -> None:
    program = small_program()
    state = program.init(0)
    with pytest.raises(ValueError, match="ema is None"):
        program.ema_params(state)
    with pytest.raises(ValueError, match="ema is None"):
        program.evaluate(state, random_batch(0), ema=True)


def test_the_same_seed_gives_the_same_bits() -> None:
    program = small_program()
    assert program.sha256(program.init(7)) == program.sha256(program.init(7))
    assert program.sha256(program.init(7)) != program.sha256(program.init(8))
    assert program.sha256(program.init(jax.random.key(7))) == program.sha256(program.init(7))


def test_params_are_named_copies() -> None:
    program = small_program()
    state = program.init(0)
    params = program.params(state)
    shapes = {name: value.shape for name, value in params.items()}
    assert shapes == {
        "conv1.weight": (8, 3, 3, 3),
        "bn1.weight": (8,),
        "bn1.bias": (8,),
        "fc1.weight": (5, 8),
        "fc1.bias": (5,),
    }
    params["conv1.weight"][:] = np.nan
    assert np.isfinite(program.params(state)["conv1.weight"]).all()
    assert sum(v.size for v in params.values()) == program.plan.parameter_count


def test_a_state_can_start_from_given_weights() -> None:
    program = small_program()
    state, _ = program.train_step(program.init(0), random_batch(0))
    params = program.params(state)
    again = program.params(program.init(5, params))
    assert all((again[name] == value).all() for name, value in params.items())
    with pytest.raises(ValueError, match=r"shape of params\['fc1.bias'\] is \(4,\)"):
        program.init(0, {**params, "fc1.bias": params["fc1.bias"][:4]})
    with pytest.raises(ValueError, match=r"params is \['fc9.bias'\], expected no tensors"):
        program.init(0, {**params, "fc9.bias": params["fc1.bias"]})


def test_zero_gamma_starts_residual_branches_at_zero() -> None:
    body = rn.seq(rn.conv(3, 3, 1, 1), rn.bn(), rn.relu(), rn.conv(3, 3, 1, 1), rn.bn())
    net = rn.seq(rn.add2(rn.identity(), body), rn.relu(), rn.gap(), rn.fc(2))
    program = rn.compile(net, SHAPE, 4, zero_gamma=True)
    params = program.params(program.init(0))
    assert (params["bn1.weight"] == 1).all()
    assert (params["bn2.weight"] == 0).all()
