"""Do two implementations agree: of a function, or of a whole program through its lowerings?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.algo.optimizer import SGD
from renaissance.algo.scheduler import Constant
from renaissance.core.errors import check_int, fail
from renaissance.core.philox import normal, uniform
from renaissance.core.types import REGIONS, Precision
from renaissance.testing.compare import assert_within

if TYPE_CHECKING:
    from renaissance.graph.blueprint import BluePrint, Layer
    from renaissance.program import Program

# Relative errors that rounding alone explains, of a gradient through a handful of layers.
TOLERANCES = {Precision.FP64: 1e-9, Precision.FP32: 1e-4, Precision.AMP: 3e-2}

# A gradient far below the others is rounding where the exact one is zero (a shift before a batch
# norm, say): it is measured against this part of the largest.
GRADIENT_FLOOR = 1e-3

Arrays = dict[str, np.ndarray]


def assert_functions_agree(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *arguments: Any,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> None:
    """Assert that two functions give the same results and the same gradients.

    Both run under ``jax.jit``. Gradients are those of the outputs, each weighted at random, with
    respect to every floating argument.

    Args:
        function: Takes ``arguments``, returns an array or a pytree of arrays.
        reference: The same, and right.
        arguments: Arrays, or pytrees of arrays.
        tolerance: Largest relative error allowed, per tensor.
        seed: Of the weights.

    Raises:
        AssertionError: names the output or gradient that differs most.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(arguments)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    values = [jnp.asarray(leaf) for _, leaf in leaves]
    floating = [i for i, v in enumerate(values) if jnp.issubdtype(v.dtype, jnp.floating)]

    def results(implementation: Callable[..., Any]) -> Arrays:
        @jax.jit
        def run(moving: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
            def outputs(moving: list[jax.Array]) -> list[jax.Array]:
                every = list(values)
                for index, value in zip(floating, moving, strict=True):
                    every[index] = value
                return jax.tree.leaves(implementation(*jax.tree.unflatten(tree, every)))

            ys, backward = jax.vjp(outputs, moving)
            weights = [_normal(y.shape, seed, index).astype(y.dtype) for index, y in enumerate(ys)]
            return ys, backward(weights)[0]

        ys, gradients = run([values[index] for index in floating])
        named = {f"output {index}": y for index, y in enumerate(ys)}
        for index, gradient in zip(floating, gradients, strict=True):
            named[f"gradient of argument {paths[index]}"] = gradient
        return {name: np.asarray(value) for name, value in named.items()}

    assert_within(results(function), results(reference), tolerance)


def assert_lowerings_agree(
    blueprint: BluePrint | Layer,
    input_shape: Sequence[int],
    batch_size: int = 8,
    *,
    lowerings: tuple[str, str] = ("fused", "xla"),
    steps: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
    **options: Any,
) -> None:
    """Assert that a model trains alike through two lowerings.

    Both programs start from the same weights and see the same random batches. Compared are the
    initial weights (bit by bit), the loss and the predictions at inference, then, step by step, the
    loss, every gradient (of the first step), every weight and every running statistic.

    Args:
        blueprint: The model.
        input_shape: ``(height, width, channels)``.
        batch_size: Rows of a batch.
        lowerings: The one in question, and the reference.
        steps: Training steps to take.
        seed: Of weights, dropout and batches.
        tolerance: Largest relative error allowed, per tensor; default 1e-4, 3e-2 under AMP and 1e-9
            in fp64.
        options: Passed on to :func:`renaissance.compile`; the optimizer defaults to momentum SGD at
            a constant rate of 0.01.

    Raises:
        AssertionError: says where they part, and names the tensor that differs most.
    """
    from renaissance.program import compile  # loads everything, so only where it is needed

    options = {"optimizer": SGD(momentum=0.9), "scheduler": Constant(0.01), **options}
    programs = [
        compile(blueprint, input_shape, batch_size, lowering=lowering, **options)
        for lowering in lowerings
    ]
    assert_programs_agree(*programs, steps=steps, seed=seed, tolerance=tolerance)


def assert_programs_agree(
    program: Program,
    reference: Program,
    *,
    steps: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
) -> None:
    """Assert that two programs of one model train alike; see :func:`assert_lowerings_agree`.

    Args:
        program: The one in question.
        reference: The one that is right.
        steps: Training steps to take.
        seed: Of weights, dropout and batches.
        tolerance: Largest relative error allowed, per tensor; the default follows the reference's
            precision.

    Raises:
        AssertionError: says where they part, and names the tensor that differs most.
        ValueError: the programs take different images.
    """
    shape = reference.config.shapes(training=True)[0]
    if program.config.shapes(training=True)[0] != shape:
        fail(ValueError, "input", program.config.shapes(training=True)[0], str(tuple(shape)))
    steps = check_int("steps", steps, 0)
    tolerance = TOLERANCES[reference.config.precision] if tolerance is None else tolerance
    pair = (program, reference)
    states = [each.init(seed) for each in pair]

    _assert_pair([e.params(s) for e, s in zip(pair, states, strict=True)], 0.0, "initial weights")
    batch = random_batch(tuple(shape), reference.plan.num_classes, seed, 0)
    if shape in reference.config.shapes(training=False):
        results = [e.evaluate(s, batch) for e, s in zip(pair, states, strict=True)]
        _assert_pair([{"loss": r["loss"]} for r in results], tolerance, "inference")

    for step in range(steps):
        batch = random_batch(tuple(shape), reference.plan.num_classes, seed, step)
        taken = [e.train_step(s, batch) for e, s in zip(pair, states, strict=True)]
        states = [state for state, _ in taken]
        where = f"step {step + 1}"
        _assert_pair([{"loss": metrics["loss"]} for _, metrics in taken], tolerance, where)
        if step == 0:
            moments = [first_moments(state) for state in states]
            _assert_pair(moments, tolerance, f"first moment after {where}", GRADIENT_FLOOR)
        trained = [
            {**each.params(state), **each.statistics(state)}
            for each, state in zip(pair, states, strict=True)
        ]
        _assert_pair(trained, tolerance, f"after {where}")


def first_moments(state: Any) -> Arrays:
    """First moments by tensor name: after one step of momentum SGD, the gradients themselves."""
    regions = [region for region in REGIONS if region.name.startswith("M_")]
    moments: Mapping[str, Any] = {n: v for region in regions for n, v in state[region].items()}
    return {name: np.asarray(value) for name, value in moments.items()}


def random_batch(
    shape: tuple[int, ...], classes: int, seed: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Normal images and uniform labels, a pure function of seed and step.

    Args:
        shape: ``(N, H, W, C)``.
        classes: Labels are in [0, classes).
        seed: Any integer.
        step: Which batch.

    Returns:
        fp32 images and int32 labels.
    """
    seed %= 2**64
    images = normal(seed, int(np.prod(shape)), operation=1, step=step).reshape(shape)
    labels = uniform(seed, shape[0], operation=2, step=step) * classes
    return images.astype(np.float32), labels.astype(np.int32)


def _assert_pair(
    pair: Sequence[Mapping[str, Any]], tolerance: float, what: str, floor: float = 0.0
) -> None:
    ours, reference = pair
    assert_within(ours, reference, tolerance, what, floor)


def _normal(shape: tuple[int, ...], seed: int, operation: int) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    return normal(seed, count, operation=operation).reshape(shape)
