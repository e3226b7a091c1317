"""Program: a compiled model. Pure functions over an explicit, donated state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.algo.initializer import initial_weights
from renaissance.core.errors import fail
from renaissance.core.types import Region, Variant
from renaissance.data.device_pipeline import Rows
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.compiler import compile_graph
from renaissance.graph.memory_plan import MemoryPlan
from renaissance.lowering.network import forward_infer, forward_train
from renaissance.lowering.state import ArrayState
from renaissance.program.backend import choose_backend
from renaissance.program.checks import (
    Batch,
    check_batch,
    check_drafts,
    check_labels,
    check_params,
    check_rows,
    check_shapes,
    check_stacks,
    kind_of,
    name_dead_leaf,
)
from renaissance.program.config import ProgramConfig
from renaissance.program.metrics import Means, Metrics, mean_of
from renaissance.program.profile_report import Profile, Rates


class Program:
    """A model compiled for fixed shapes; made by :func:`renaissance.compile`.

    Nothing in it changes after compilation but what it has found out already: the state goes in and
    comes out of every call. A state that has gone into :meth:`train_step` is given up; use the one
    that came out.
    """

    def __init__(self, config: ProgramConfig):
        self.config = config
        self.graph = compile_graph(config.blueprint, config.options, config.num_classes)
        self.backend = choose_backend(config, self.graph)
        self._shapes = {training: config.shapes(training) for training in (True, False)}
        self._ready: dict[Any, Callable[..., tuple[Any, Metrics]]] = {}
        """Steps by the kinds of device batches that have passed all checks."""

    @property
    def plan(self) -> ArchPlan:
        """The flat network with its shapes."""
        return self.graph.plan

    @property
    def memory(self) -> MemoryPlan:
        """The memory plan of the full training batch."""
        return self.graph.memory[Variant.TRAIN_BASE]

    # -- state ------------------------------------------------------------------------------------

    def init(
        self, seed: int | jax.Array = 0, params: Mapping[str, Any] | None = None
    ) -> ArrayState:
        """A fresh state.

        Args:
            seed: An integer, or a JAX random key whose bits become the seed. The same seed gives
                the same bits on every machine: weights are drawn on the host.
            params: Weights to start from instead, by name as in :meth:`params`; the seed then only
                serves dropout.

        Raises:
            ValueError: ``params`` lacks a tensor, has one too many or one of another shape.
        """
        number = seed_of(seed)
        config = self.config
        if params is not None:
            return self.backend.init(check_params(self.plan, params), number)
        weights = initial_weights(
            [(name, spec.shape, spec.group) for name, spec, _ in self.plan.weights()],
            config.initializer,
            number,
            zero_gamma=self.plan.residual_gammas() if config.zero_gamma else (),
        )
        return self.backend.init(weights, number)

    def params(self, state: ArrayState) -> dict[str, np.ndarray]:
        """Copies of the master weights by name, ``"conv1.weight"``; safe to keep."""
        return self._gather(state, "W")

    def ema_params(self, state: ArrayState) -> dict[str, np.ndarray]:
        """Copies of the moving average of the weights.

        Raises:
            ValueError: the program keeps none.
        """
        self._check_ema(True)
        return self._gather(state, "E")

    def statistics(self, state: ArrayState) -> dict[str, np.ndarray]:
        """Copies of the BN running statistics by name, ``"bn1.mean"``."""
        return {**state[Region.B_PREV_MEAN], **state[Region.B_PREV_VAR]}

    def sha256(self, state: ArrayState) -> str:
        """Hash of the master weights and running statistics: equal bits, equal hash."""
        digest = hashlib.sha256()
        for name, value in sorted({**self.params(state), **self.statistics(state)}.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()

    def _gather(self, state: ArrayState, role: str) -> dict[str, np.ndarray]:
        names = {name: spec.group.region(role) for name, spec, _ in self.plan.weights()}
        regions = {region: state[region] for region in dict.fromkeys(names.values())}
        return {name: regions[region][name] for name, region in names.items()}

    # -- training ---------------------------------------------------------------------------------

    def train_step(self, state: ArrayState, batch: Batch | Rows) -> tuple[ArrayState, Metrics]:
        """One step of training; ``state`` is donated.

        A call costs the host what JAX takes to launch an executable and a few microseconds: there
        is nothing per tensor of the state, and no array operation outside the executable.

        A batch on the device is taken where it lies: with four addresses in turn the executable is
        as fast as with one (``benchmarks/dispatch.py``), so there is no fixed slot outside the
        banks. One on the host is copied by the call;
        :class:`~renaissance.data.transfer.TransferStation` copies it ahead of the call instead.
        Every step needs the state of the step before, so batches are consumed in the order of the
        calls, and no sequence number is needed to prove it.

        Args:
            state: From :meth:`init` or an earlier step.
            batch: (images, labels): (N, H, W, C) normalised floats and (N,) integers; or the
                rows of a data set on the device that the step makes its batch from.

        Returns:
            The new state and this batch's :class:`~renaissance.program.metrics.Metrics`: ``loss``,
            ``top1``, ``top5``, ``count``, ``lr``, ``skipped``.

        Raises:
            ValueError: a shape the program was not compiled for, or a state already given up.
            TypeError: images that are no floats, or labels that are no integers.
        """
        kind = kind_of(batch)
        try:
            if kind in self._ready:
                return self._ready[kind](state, *batch)  # type: ignore[misc]
            if isinstance(batch, Rows):
                check_drafts(batch, 1, self._shapes[True], self.plan.num_classes)
                return self.backend.train_rows(state, batch)
            images, labels = check_batch(batch, self._shapes[True], self.plan.num_classes)
            result = self.backend.train_step(state, images, labels)
        except (RuntimeError, ValueError) as error:
            name_dead_leaf(state, error)
            raise
        if isinstance(images, jax.Array) and isinstance(labels, jax.Array):
            self._ready[kind] = self.backend.ready_step(images, labels)
        return result

    def train_steps(
        self,
        state: ArrayState,
        batches: Batch | Rows,
        indices: Any = None,
        *,
        values: Any = None,
    ) -> tuple[ArrayState, Metrics]:
        """Several steps as one executable: on stacked batches, or on rows of a data set.

        Args:
            state: As in :meth:`train_step`, donated.
            batches: Stacked (images, labels): (S, N, H, W, C) and (S, N). With ``indices`` a data
                set: (M, H, W, C) and (M,), best already on the device. Or the rows of a data set
                that the executable makes its batches from, transforms and all, as
                :meth:`renaissance.data.device_loader.DeviceLoader.rows` gives them.
            indices: (S, N) integers: the rows of the data set that each batch takes. Those out of
                range are not noticed once they are on the device.
            values: (256,) floats, what the bytes of uint8 images stand for, such as
                ``(numpy.arange(256) / 255 - mean) / std``; only with ``indices``.

        Returns:
            The new state and metrics with a leading axis S.

        Raises:
            ValueError: a shape the program was not compiled for, a row that the data set does not
                have, or a state already given up.
            TypeError: bytes without ``values``, or ``values`` for other images.
        """
        if isinstance(batches, Rows):
            if indices is not None or values is not None:
                fail(TypeError, "indices and values with rows", (indices, values), "neither")
            check_drafts(batches, 2, self._shapes[True], self.plan.num_classes)
            state.check_alive()
            return self.backend.train_rows(state, batches)
        images, labels = batches
        if indices is None and values is None:
            check_stacks(images, labels, self._shapes[True])
            rest: tuple[Any, ...] = ()
        else:
            check_rows(images, labels, indices, values)
            shape = (np.shape(indices)[1], *np.shape(images)[1:])
            check_shapes(shape, shape[:1], self._shapes[True])
            rest = (indices, values)
        if isinstance(labels, np.ndarray):
            check_labels(labels.reshape(-1), self.plan.num_classes)
        state.check_alive()
        return self.backend.train_steps(state, images, labels, *rest)

    def clear_metrics(self, state: ArrayState) -> ArrayState:
        """The state with the epoch's sums at zero; ``state`` is donated."""
        return self.backend.clear_metrics(state)

    def epoch_metrics(self, state: ArrayState) -> Means:
        """Means over all rows trained on since :meth:`clear_metrics`."""
        sums = {n: float(v) for n, v in state[Region.R_RESULT_ACCUMULATED].items()}
        return mean_of(sums)

    def check_progress(self, state: ArrayState) -> None:
        """Raise when too many steps in a row overflowed.

        Raises:
            TrainingDiverged: says how many, and the loss scale they ended with.
        """
        self.config.loss_scale.check(
            int(state[Region.S_SCALAR_INT32]["overflow_run"]),
            float(state[Region.S_SCALAR_FP32]["loss_scale"]),
        )

    # -- inference --------------------------------------------------------------------------------

    def evaluate(
        self, state: ArrayState, batches: Batch | Iterable[Batch], *, ema: bool = False
    ) -> Means:
        """Loss and accuracy over one batch or many.

        Args:
            state: Read, not donated.
            batches: One (images, labels), or an iterable of them, in the validation shapes.
            ema: Use the moving average of the weights.

        Returns:
            ``loss``, ``top1``, ``top5`` as means over all rows, and ``count``.
        """
        state.check_alive()
        self._check_ema(ema)
        one = isinstance(batches, tuple) and len(batches) == 2 and np.ndim(batches[0]) == 4
        shapes, classes = self._shapes[False], self.plan.num_classes
        results = [
            self.backend.infer(state, *check_batch(batch, shapes, classes), ema=ema)[0]
            for batch in cast(Iterable[Batch], [batches] if one else batches)
        ]
        if not results:
            fail(ValueError, "number of batches", 0, "at least one")
        fetched = jax.device_get(results)  # all copies on their way before the first is waited for
        return mean_of({n: sum(float(r[n]) for r in fetched) for n in fetched[0]})

    def predict(self, state: ArrayState, images: Any, *, ema: bool = False) -> jax.Array:
        """Predicted class of each row, (N,) int32, for images in a validation shape."""
        labels = np.zeros(np.shape(images)[:1], np.int32)
        state.check_alive()
        self._check_ema(ema)
        checked = check_batch((images, labels), self._shapes[False], self.plan.num_classes)
        return self.backend.infer(state, *checked, ema=ema)[1]

    def apply(
        self,
        params: Mapping[str, Any],
        images: Any,
        statistics: Mapping[str, Any] | None = None,
        *,
        train: bool = False,
        seed: int = 0,
        step: int = 0,
    ) -> jax.Array:
        """The network as a pure function: logits (N, classes), for ``jax.grad`` and friends.

        Args:
            params: Tensors by name, as from :meth:`params`.
            images: (N, H, W, C) in any batch size; their dtype is the compute type.
            statistics: BN running statistics, as from :meth:`statistics`; not needed to train.
            train: Batch statistics and dropout instead of running statistics.
            seed: Seed of dropout's masks.
            step: Step of dropout's masks.
        """
        x = jnp.asarray(images)
        weights = {n: jnp.asarray(v) for n, v in params.items()}
        running = {n: jnp.asarray(v) for n, v in (statistics or {}).items()}
        check_params(self.plan, weights)
        if train:
            return forward_train(self.plan, weights, running, x, seed=seed, step=step)[0]
        return forward_infer(self.plan, weights, running, x)

    # -- measuring --------------------------------------------------------------------------------

    def profile(self, *, repeats: int = 5, rates: Rates | None = None) -> Profile:
        """Where the time of a train step goes: by sub-graph, and by custom call.

        Args:
            repeats: Timed repeats of every call; the median counts.
            rates: The device's peak rates; measured in the same run unless given.

        Returns:
            A :class:`~renaissance.program.profile_report.Profile`; ``print(p.table())`` shows it.
            The XLA lowering compiles the step as a whole, so there it holds the step's time only.
        """
        from renaissance.program.profile import profile

        return profile(self, repeats=repeats, rates=rates)

    def _check_ema(self, wanted: bool) -> None:
        if wanted and self.config.ema is None:
            fail(ValueError, "ema", None, "a decay given to compile()")

    def __repr__(self) -> str:
        return (
            f"Program({self.config.blueprint.name}, input {self._shapes[True][0]}, "
            f"{self.plan.parameter_count:,} parameters, {self.config.precision.value}, "
            f"{self.backend.name} lowering)"
        )


def seed_of(seed: int | jax.Array) -> int:
    """A 64-bit seed from an integer or a JAX random key."""
    if isinstance(seed, jax.Array):
        if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
            seed = jax.random.key_data(seed)
        words = np.asarray(seed, np.uint32).reshape(-1)
        return int(sum(int(word) << (32 * i) for i, word in enumerate(words[-2:][::-1])))
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        fail(TypeError, "seed", seed, "an integer or a JAX random key")
    return int(seed) & 0xFFFFFFFFFFFFFFFF
