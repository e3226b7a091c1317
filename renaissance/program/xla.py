"""The XLA lowering as a program's backend: one executable per distinct input shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import fail
from renaissance.core.types import Precision, Region
from renaissance.data.device_pipeline import Rows
from renaissance.graph.compiler import CompiledGraph
from renaissance.lowering.inference import infer
from renaissance.lowering.loop import train_steps
from renaissance.lowering.recipe import Recipe
from renaissance.lowering.state import ArrayState, owned
from renaissance.lowering.step import train_step
from renaissance.program.config import ProgramConfig
from renaissance.program.metrics import Metrics
from renaissance.runtime.executables import Executable, aot_compile


class XlaBackend:
    """Runs a program through XLA's own lowering: the reference, and the CPU default."""

    name = "xla"

    def __init__(self, config: ProgramConfig, graph: CompiledGraph):
        if config.precision is Precision.FP64 and not jax.config.read("jax_enable_x64"):
            fail(ValueError, "precision", "fp64", "jax_enable_x64 switched on first")
        self.config = config
        self.recipe = Recipe(
            plan=graph.plan,
            precision=config.precision,
            loss=config.loss,
            optimizer=config.optimizer,
            loss_scale=config.loss_scale,
            clip=config.clip,
            ema=config.ema,
            freeze_first_layer=config.options.first_layer_frozen,
        )
        self.order = graph.train_order
        self._executables: dict[tuple[Any, ...], Executable] = {}

    # -- state ------------------------------------------------------------------------------------

    def init(self, weights: Mapping[str, np.ndarray], seed: int) -> ArrayState:
        """A state with these master weights and everything else at its start."""
        return ArrayState(
            {
                region: {name: owned(value) for name, value in tensors.items()}
                for region, tensors in self.start(weights, seed).items()
            }
        )

    def start(
        self, weights: Mapping[str, np.ndarray], seed: int
    ) -> dict[Region, dict[str, np.ndarray]]:
        """What a state begins with, on the host."""
        config, plan = self.config, self.recipe.plan
        master = config.precision.master.numpy
        slots = config.optimizer.slots
        regions: dict[Region, dict[str, np.ndarray]] = {}

        def put(role: str, name: str, value: Any, dtype: Any = master) -> None:
            region = self.recipe.groups[name].region(role)
            regions.setdefault(region, {})[name] = np.asarray(value, dtype)

        for name, value in weights.items():
            put("W", name, value)
            if slots.first_moment:
                put("M", name, np.zeros_like(value))
            if slots.second_moment:
                put("V", name, np.zeros_like(value))
            if config.ema is not None:
                put("E", name, value)
            if config.amp and self.recipe.groups[name].has_compute_copy:
                put("A", name, value, np.float16)
        for name, spec, _ in plan.statistics():
            region = Region.B_PREV_MEAN if spec.name == "mean" else Region.B_PREV_VAR
            first = np.zeros if spec.name == "mean" else np.ones
            regions.setdefault(region, {})[name] = first(spec.shape, master)
        return regions | self._scalars(seed)

    def _scalars(self, seed: int) -> dict[Region, dict[str, np.ndarray]]:
        config = self.config
        master = config.precision.master.numpy
        scale = config.loss_scale.initial if config.amp else 1.0
        table = config.scheduler.table(config.steps_per_epoch, config.epochs, dtype=master)
        words = [seed & 0xFFFFFFFF, seed >> 32]
        counters = ("applied_steps", "skipped_steps", "clean_steps", "overflow_run", "nan_flag")
        sums = ("loss", "top1", "top5", "count")
        return {
            Region.R_RESULT: {n: np.zeros((), np.float32) for n in sums},
            Region.R_RESULT_ACCUMULATED: {n: np.zeros((), np.float32) for n in sums},
            Region.S_SCALAR_FP32: {
                "lr": np.zeros((), master),
                "loss_scale": np.asarray(scale, np.float32),
                "lr_table": np.asarray(table, master),
            },
            Region.S_SCALAR_INT32: {
                **{n: np.zeros((), np.int32) for n in counters},
                "seed": np.array(words, np.uint32).view(np.int32),
            },
        }

    # -- running ----------------------------------------------------------------------------------

    def train_step(self, state: ArrayState, images: Any, labels: Any) -> tuple[ArrayState, Metrics]:
        """One step through the executable of this shape."""
        function = partial(train_step, self.recipe, self.order)
        state, metrics = self._run("train_step", function, state, images, labels)
        return state, Metrics(metrics)

    def ready_step(self, images: jax.Array, labels: jax.Array) -> Callable[..., Any]:
        """:meth:`train_step` for batches like one trained on before."""
        return self.train_step

    def train_steps(
        self, state: ArrayState, images: Any, labels: Any, indices: Any = None, values: Any = None
    ) -> tuple[ArrayState, Metrics]:
        """Many steps through one executable with a loop inside: of stacks, or of a set's rows."""
        function = partial(train_steps, self.recipe, self.order)
        rest = [] if indices is None else [on_device(indices, INT32)]
        rest += [] if values is None else [on_device(values)]
        state, metrics = self._run("train_steps", function, state, images, labels, *rest)
        return state, Metrics(metrics)

    def train_rows(self, state: ArrayState, rows: Rows) -> tuple[ArrayState, Metrics]:
        """One step or many on batches that XLA makes first, in an executable of their own."""
        train = self.train_step if rows.ids.ndim == 1 else self.train_steps
        return train(state, *rows.prepared())

    def infer(
        self, state: ArrayState, images: Any, labels: Any, *, ema: bool
    ) -> tuple[dict[str, jax.Array], jax.Array]:
        """Sums over the batch's rows, and the predicted class of each."""
        function = partial(infer, self.recipe, ema=ema)
        name = "infer_ema" if ema else "infer"
        return self._run(name, function, state, images, labels, donates=False)

    def clear_metrics(self, state: ArrayState) -> ArrayState:
        """The state with the epoch's sums at zero."""
        sums = state.region(Region.R_RESULT_ACCUMULATED)
        return state.replace(
            {Region.R_RESULT_ACCUMULATED: {n: owned(0.0, np.float32) for n in sums}}
        )

    def executable(self, name: str, shape: tuple[int, ...]) -> Executable:
        """An executable that has run or been compiled, for inspection.

        Raises:
            KeyError: there is none of that name and shape.
        """
        return next(e for key, e in self._executables.items() if key[:2] == (name, tuple(shape)))

    def _run(
        self,
        name: str,
        function: Callable[..., Any],
        state: ArrayState,
        images: Any,
        labels: Any,
        *rest: jax.Array,
        donates: bool = True,
    ) -> Any:
        images, labels = on_device(images), on_device(labels, INT32)
        key = (name, images.shape, images.dtype, *((a.shape, a.dtype) for a in rest))
        executable = self._executables.get(key)
        if executable is None:
            title = f"{name} {'x'.join(map(str, images.shape))}"
            given = (images, labels, *rest)
            options = compile_options(self.recipe, jax.default_backend())
            executable = aot_compile(
                title, function, state, *given, donates=donates, options=options
            )
            self._executables[key] = executable
        return executable(state, images, labels, *rest)


INT32 = np.dtype(np.int32)


def compile_options(recipe: Recipe, platform: str) -> dict[str, Any]:
    """Options for XLA's compiler, where measurements speak for some.

    A small network's products shall not be split over their sums: adding up the parts takes a
    launch each, and padding for them often another (``benchmarks/loop_kernels.py``).

    Args:
        recipe: What is compiled.
        platform: JAX's name of the backend.
    """
    is_such = platform == "gpu" and recipe.precision is Precision.AMP and recipe.is_small_mlp
    return {"xla_gpu_experimental_force_split_k": 1} if is_such else {}


def on_device(value: Any, dtype: np.dtype[Any] | None = None) -> jax.Array:
    """A device array; one of the right type passes through untouched."""
    if isinstance(value, jax.Array) and (dtype is None or value.dtype == dtype):
        return value
    return jnp.asarray(value, dtype)
