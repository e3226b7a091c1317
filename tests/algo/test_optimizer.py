"""Update formulas: printed values, PyTorch's trajectories, one formula for numpy and jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW, Optimizer, bias_correction

ALL: list[Optimizer] = [
    SGD(),
    SGD(weight_decay=0.05),
    SGD(0.9, weight_decay=0.05),
    SGD(0.9, nesterov=True, weight_decay=0.05),
    LARS(0.0, weight_decay=0.05),
    LARS(weight_decay=0.05),
    LARS(nesterov=True, weight_decay=0.05, eps=1e-3),
    Adam(),
    Adam(weight_decay=0.05),
    AdamW(),
]


def moments(optimizer: Optimizer, w: Any) -> tuple[Any, Any]:
    slots = optimizer.slots
    return (
        np.zeros_like(w) if slots.first_moment else None,
        np.zeros_like(w) if slots.second_moment else None,
    )


def run(
    optimizer: Optimizer, w: Any, gradients: Any, rates: Any, *, decay: bool = True
) -> list[np.ndarray]:
    """The weights after every step, in float64."""
    w = np.array(w, np.float64)
    m, v = moments(optimizer, w)
    trajectory = []
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = np.broadcast_to(np.asarray(g, np.float64), w.shape)
        w, m, v = optimizer.update(w, g, m, v, lr=lr, t=t, decay=decay)
        trajectory.append(w)
    return trajectory


@pytest.mark.parametrize(
    ("optimizer", "start", "gradients", "rates", "expected"),
    [
        (SGD(0.9), 0.0, [1, 1, 1], [0.1, 0.1, 0.01], [-0.1, -0.29, -0.3171]),
        (SGD(0.9, nesterov=True), 0.0, [1, 1, 1], [0.1, 0.1, 0.01], [-0.19, -0.461, -0.49539]),
        (AdamW(weight_decay=0.01), 1.0, [0], [0.1], [0.999]),
        (Adam(), 0.0, [1, 0.5, -1], [0.1] * 3, [-0.1, -0.193218, -0.204296]),
        (AdamW(weight_decay=0.01), 1.0, [1, 0.5, -1], [0.1] * 3, [0.899, 0.804883, 0.793]),
        (
            LARS(weight_decay=0.1),
            [3, 4],
            [[0.6, 0.8]] * 2,
            [1, 1],
            [[2.997, 3.996], [2.991303, 3.988404]],
        ),
        (
            LARS(nesterov=True, weight_decay=0.1),
            [3, 4],
            [[0.6, 0.8]] * 2,
            [1, 1],
            [[2.9943, 3.9924], [2.986181, 3.981574]],
        ),
    ],
)
def test_printed_values(
    optimizer: Optimizer, start: Any, gradients: Any, rates: Any, expected: Any
) -> None:
    np.testing.assert_allclose(run(optimizer, start, gradients, rates), expected, atol=6e-7)


GOLDEN: dict[str, Optimizer] = {
    "sgd": SGD(weight_decay=0.05),
    "momentum": SGD(0.9, weight_decay=0.05),
    "nesterov": SGD(0.9, nesterov=True, weight_decay=0.05),
    "adam": Adam(weight_decay=0.05),
    "adam_no_decay": Adam(0.8, 0.95, 1e-3),
    "adamw": AdamW(weight_decay=0.05),
    "adamw_other": AdamW(0.8, 0.95, 1e-3, 0.2),
    "lars": LARS(0.9, False, 0.1, 0.02, 1e-3),
    "lars_nesterov": LARS(0.9, True, 0.1, 0.02, 1e-3),
}


def test_every_golden_trajectory_has_a_test(golden: dict[str, Any]) -> None:
    assert golden["trajectories"].keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("tensor", ["weight", "bias"])
def test_golden_trajectories_in_float64(golden: dict[str, Any], name: str, tensor: str) -> None:
    problem = golden["problem"]
    ours = run(
        GOLDEN[name],
        problem["weights"][tensor],
        [g[tensor] for g in problem["gradients"]],
        problem["rates"],
        decay=tensor == "weight",
    )
    reference = [np.array(w[tensor]) for w in golden["trajectories"][name]]
    for step, (w, expected) in enumerate(zip(ours, reference, strict=True)):
        error = np.linalg.norm(w.ravel() - expected) / np.linalg.norm(expected)
        assert error <= 1e-13, f"step {step}: {error}"


def random_step(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    w, g, m = (random.normal(size=shape).astype(dtype) for _ in range(3))
    return {"w": w, "g": g, "m": m, "v": np.square(random.normal(size=shape)).astype(dtype)}


def step_of(optimizer: Optimizer, arrays: dict[str, Any], xp: Any, **options: Any) -> tuple:
    slots = optimizer.slots
    return optimizer.update(
        arrays["w"],
        arrays["g"],
        arrays["m"] if slots.first_moment else None,
        arrays["v"] if slots.second_moment else None,
        xp=xp,
        **options,
    )


@pytest.mark.parametrize(
    ("optimizer", "decay"), [(o, True) for o in ALL] + [(LARS(), False), (AdamW(), False)], ids=repr
)
def test_jax_runs_the_same_formula(optimizer: Optimizer, decay: bool) -> None:
    arrays = random_step(np.float32, (5, 3, 3, 7))

    @jax.jit
    def jitted(arrays: dict[str, Any], lr: Any, t: Any) -> Any:
        return tuple(step_of(optimizer, arrays, jnp, lr=lr, t=t, decay=decay))

    expected = step_of(optimizer, arrays, np, lr=0.1, t=3, decay=decay)
    given = jitted(arrays, jnp.float32(0.1), jnp.int32(3))
    for ours, jaxs in zip(expected, given, strict=True):
        assert (ours is None) == (jaxs is None)
        if ours is not None:
            assert ours.dtype == jaxs.dtype == np.float32
            # a compiler may contract a*b+c: one rounding of the largest term less
            np.testing.assert_allclose(jaxs, ours, rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lr", [0.1, np.float64(0.1), np.float32(0.1)])
def test_the_dtype_of_the_weights_is_kept(optimizer: Optimizer, dtype: Any, lr: Any) -> None:
    new = step_of(optimizer, random_step(dtype, (4, 3)), np, lr=lr, t=1, decay=True)
    assert {x.dtype for x in new if x is not None} == {np.dtype(dtype)}


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_slots_say_which_moments_exist(optimizer: Optimizer) -> None:
    w, m, v = step_of(optimizer, random_step(np.float32, (3,)), np, lr=0.1, t=1, decay=False)
    assert (m is not None, v is not None) == (
        optimizer.slots.first_moment,
        optimizer.slots.second_moment,
    )
    assert w.shape == (3,)


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_inputs_are_left_alone(optimizer: Optimizer) -> None:
    arrays = random_step(np.float32, (3, 2))
    before = {n: x.copy() for n, x in arrays.items()}
    step_of(optimizer, arrays, np, lr=0.1, t=1, decay=True)
    assert all(np.array_equal(arrays[n], before[n]) for n in arrays)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(weight_decay=0.5),
        SGD(0.9, weight_decay=0.5),
        LARS(weight_decay=0.5),
        Adam(weight_decay=0.5),
        AdamW(weight_decay=0.5),
    ],
    ids=repr,
)
def test_no_decay_without_the_flag(optimizer: Optimizer) -> None:
    w = run(optimizer, [1.0, -2.0], [0.0], [0.1], decay=False)[0]
    assert w.tolist() == [1.0, -2.0]
    assert run(optimizer, [1.0, -2.0], [0.0], [0.1], decay=True)[0].tolist() != [1.0, -2.0]


@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_moves_biases_by_the_momentum_rule(nesterov: bool) -> None:
    gradients, rates = [[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], [0.1, 0.1, 0.02]
    lars = run(LARS(0.9, nesterov, 0.1), [5.0, 6.0], gradients, rates, decay=False)
    momentum = run(SGD(0.9), [5.0, 6.0], gradients, rates, decay=False)
    np.testing.assert_array_equal(lars, momentum)


@pytest.mark.parametrize(("w", "g"), [([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0])])
def test_lars_ratio_is_one_when_a_norm_is_zero(w: list[float], g: list[float]) -> None:
    assert LARS(weight_decay=0.1).trust_ratio(np.array(w), np.array(g)) == 1.0
    moved = run(LARS(0.0), w, [g], [0.5])[0]
    assert moved.tolist() == [w[0] - 0.5 * g[0], w[1] - 0.5 * g[1]]


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("size", [1e-36, 1e-25, 1.0, 1e19, 1e36])
def test_lars_ratio_does_not_depend_on_the_scale_of_both(size: float, xp: Any) -> None:
    w = np.array([3.0, 4.0, 0.0], np.float32) * np.float32(size)
    ratio = LARS().trust_ratio(xp.asarray(w), xp.asarray(w / 2), xp=xp)
    assert float(ratio) == pytest.approx(0.002, rel=1e-6)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.9999])
@pytest.mark.parametrize("t", [1, 2, 10, 1000, 10**6])
def test_bias_correction_does_not_cancel_in_float32(beta: float, t: int, xp: Any) -> None:
    value = bias_correction(beta, xp.asarray(t), np.float32, xp=xp)
    assert value.dtype == np.float32
    assert float(value) == pytest.approx(1 - beta**t, rel=4e-7)


def test_an_adam_step_in_float32_is_as_good_as_float32_allows() -> None:
    """The first step is lr in size, whatever the gradient; a cancelling correction loses digits."""
    arrays = {k: x * 0 if k in "wmv" else x for k, x in random_step(np.float32, (64,)).items()}
    w = step_of(Adam(), arrays, np, lr=0.1, t=1, decay=True)[0]
    np.testing.assert_allclose(np.abs(w), 0.1, rtol=2e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGD(momentum=1.0), r"SGD momentum is 1.0, expected .* \[0, 1\)"),
        (lambda: SGD(momentum=-0.1), "SGD momentum is -0.1"),
        (lambda: SGD(weight_decay=-1e-4), "SGD weight_decay is -0.0001"),
        (lambda: SGD(nesterov=True), "SGD momentum is 0.0, expected above 0 with nesterov"),
        (lambda: LARS(trust_coefficient=0), "LARS trust_coefficient is 0"),
        (lambda: LARS(eps=-1), "LARS eps is -1"),
        (lambda: LARS(0.0, nesterov=True), "LARS momentum is 0.0"),
        (lambda: Adam(beta1=1.0), "Adam beta1 is 1.0"),
        (lambda: Adam(eps=0), "Adam eps is 0"),
        (lambda: AdamW(beta2=float("nan")), "AdamW beta2 is nan"),
        (lambda: AdamW(weight_decay=float("inf")), "AdamW weight_decay is inf"),
    ],
)
def test_errors_name_the_value(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_learning_rate_is_refused() -> None:
    with pytest.raises(TypeError, match="lr"):
        SGD(lr=0.1)  # type: ignore[call-arg]
