"""The fused lowering as a program's backend: all memory planned, one executable per shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import fail
from renaissance.core.types import Bank, DType, GraphId, Precision, Region, Shape, Variant
from renaissance.data.device_pipeline import Rows
from renaissance.graph.compiler import CompiledGraph
from renaissance.lowering.calls.in_place import Banks, PlanLaunches, no_launches, thread
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.nodes import lower_nodes
from renaissance.lowering.fused.passes import FusedPass, empty_table, inference_pass, train_pass
from renaissance.lowering.recipe import Recipe
from renaissance.lowering.rewrites.augment import Drafts
from renaissance.lowering.rewrites.joined_banks import array_bytes
from renaissance.lowering.rewrites.persistent import check_persistent
from renaissance.lowering.state import ArrayState
from renaissance.program.config import ProgramConfig
from renaissance.program.cuda import CudaKernels
from renaissance.program.made_steps import MadeSteps, augmentation_of
from renaissance.program.many_steps import ManySteps, Samples, dtype_of
from renaissance.program.metrics import Metrics
from renaissance.program.xla import INT32, XlaBackend, on_device
from renaissance.runtime import library
from renaissance.runtime.arena import Arena, BankState
from renaissance.runtime.executables import Executable, aot_compile
from renaissance.runtime.module_check import check_module

State = BankState | ArrayState


class FusedBackend:
    """Runs a program through custom calls on planned, donated memory.

    Args:
        config: What the program is compiled from.
        graph: Its memory plans and graph.

    Raises:
        NativeError: the native library is missing.
        PlanError: an operation of the network has no kernel of its own yet.
        ValueError: the precision is fp64.
    """

    name = "fused"

    def __init__(self, config: ProgramConfig, graph: CompiledGraph):
        if config.precision is Precision.FP64:
            fail(ValueError, "precision in the fused lowering", "fp64", "fp32 or amp")
        self.config, self.graph = config, graph
        self.reference = XlaBackend(config, graph)
        self.recipe: Recipe = self.reference.recipe
        self.plan_launches = launches_for(jax.local_devices()[0])
        self.arena = self._arena()
        self._executables: dict[tuple[Any, ...], Executable] = {}
        for variant in (Variant.TRAIN_BASE, Variant.VAL_BASE):
            kind = "train" if variant.is_training else "infer"
            fused = self._pass(variant, DType.FP32, kind)
            if isinstance(self.plan_launches, CudaKernels):
                self.plan_launches.prepare(fused.calls)
            if variant.is_training and config.loop == "persistent":
                check_persistent(Scene(graph.memory[variant], self.recipe), fused.calls)

    def _arena(self) -> Arena:
        memory = self.graph.memory[Variant.TRAIN_BASE]
        kept = [
            tensor
            for tensor in memory.tensors.values()
            if tensor.bank is Bank.PERSISTENT and _is_exchanged(tensor.region, tensor.name)
        ]
        shapes = {name: spec.shape for name, spec, _ in self.recipe.plan.weights()}
        shapes["lr_table"] = (self.config.options.lr_table_length,)
        return Arena(kept, array_bytes(memory), shapes)

    # -- state ------------------------------------------------------------------------------------

    def init(self, weights: Mapping[str, np.ndarray], seed: int) -> BankState:
        """A state with these master weights and everything else at its start."""
        return self.arena.pack(self.reference.start(weights, seed))

    def adopt(self, state: State) -> BankState:
        """The state in banks, whichever lowering it comes from; nothing is lost."""
        if isinstance(state, BankState):
            return state
        return self.arena.pack({region: state[region] for region in state})

    # -- running ----------------------------------------------------------------------------------

    def train_step(self, state: State, images: Any, labels: Any) -> tuple[BankState, Metrics]:
        """One step through the executable of this shape."""
        after, table = self._run("train_step", self._one_step, self.adopt(state), images, labels)
        return after, Metrics(table, sums=True, one_step=True)

    def ready_step(self, images: jax.Array, labels: jax.Array) -> Callable[..., Any]:
        """:meth:`train_step` for batches like one trained on before: its executable is known."""
        found = self._executables.get(("train_step", _kind(images), _kind(labels)))
        if found is None:  # labels of another type: they are converted each time
            return self.train_step
        compiled = found.compiled

        def step(state: State, images: jax.Array, labels: jax.Array) -> tuple[BankState, Metrics]:
            if type(state) is not BankState:
                return self.train_step(state, images, labels)
            arrays, table = compiled(state.arrays, images, labels)
            return BankState.of_arrays(state.arena, arrays), Metrics(
                table, sums=True, one_step=True
            )

        return step

    def _one_step(self, banks: Banks, images: jax.Array, labels: jax.Array) -> tuple[Banks, Any]:
        fused = self._pass(self._variant(images.shape, True), dtype_of(images), "train")
        zero = jnp.zeros((), jnp.int32)
        return fused.run(
            banks, empty_table(1), images[None], labels[None], zero, self.plan_launches
        )

    def train_steps(
        self, state: State, images: Any, labels: Any, indices: Any = None, values: Any = None
    ) -> tuple[BankState, Metrics]:
        """Many steps through one executable; see :class:`Samples`."""
        given = [on_device(images), on_device(labels, INT32)]
        given += [] if indices is None else [on_device(indices, INT32)]
        given += [] if values is None else [on_device(values)]
        samples = Samples(*given)
        memory = self.graph.memory[self._variant(samples.batch_shape, True)]
        scene = Scene(memory, self.recipe, samples.dtype)
        steps = ManySteps(self.config.loop, self.graph, scene, self.plan_launches)

        def many(banks: Banks, *arrays: jax.Array) -> tuple[Banks, jax.Array]:
            return steps(banks, Samples(*arrays))

        needs = lambda: steps.workspace  # noqa: E731  (known once the steps are traced)
        after, table = self._run("train_steps", many, self.adopt(state), *given, workspace=needs)
        return after, Metrics(table, sums=True)

    def train_rows(self, state: State, rows: Rows) -> tuple[BankState, Metrics]:
        """One step or many that make their batches themselves; see :class:`MadeSteps`.

        A chain of transforms that the kernel cannot hold is XLA's, in an executable before.
        """
        single = rows.ids.ndim == 1
        augmentation = augmentation_of(rows.pipeline)
        if not augmentation.fits:
            train = self.train_step if single else self.train_steps
            return train(state, *rows.prepared())
        memory = self.graph.memory[self._variant(rows.batch_shape, True)]
        scene = Scene(memory, self.recipe, self.recipe.precision.compute)
        steps = MadeSteps(self.config.loop, self.graph, scene, self.plan_launches)
        data = rows.data
        ids = rows.ids[None] if single else rows.ids
        given = (data.images, data.labels, ids, data.seed, np.uint32(rows.epoch))

        def many(banks: Banks, *arrays: jax.Array) -> tuple[Banks, jax.Array]:
            return steps.of(augmentation, banks, Drafts(*arrays))

        after, table = self._run(
            "train_rows",
            many,
            self.adopt(state),
            *(*given, data.tables, data.table),
            workspace=lambda: steps.workspace,
            traced_for=(augmentation,),
        )
        return after, Metrics(table, sums=True, one_step=single)

    def infer(
        self, state: State, images: Any, labels: Any, *, ema: bool
    ) -> tuple[dict[str, jax.Array], jax.Array]:
        """Sums over the batch's rows, and the predicted class of each.

        The banks go through the executable and back into ``state``, which stays usable: inference
        writes scratch memory only.
        """
        kind = "infer_ema" if ema else "infer"

        def step(banks: Banks, images: jax.Array, labels: jax.Array) -> tuple[Banks, Any]:
            variant = self._variant(images.shape, False)
            fused = self._pass(variant, dtype_of(images), kind)
            predicted = self.graph.memory[variant].tensor((Region.R_PREDICTED_LABEL, "label"))
            zero = jnp.zeros((), jnp.int32)
            banks, table = fused.run(
                banks, empty_table(1), images[None], labels[None], zero, self.plan_launches
            )
            piece = jax.lax.slice_in_dim(
                banks[Bank.PERSISTENT], predicted.offset, predicted.offset + predicted.nbytes
            )
            label = jax.lax.bitcast_convert_type(piece.reshape(-1, 4), jnp.int32)
            sums = {name: table[0, i] for i, name in enumerate(("loss", "top1", "top5", "count"))}
            return banks, (sums, label)

        banked = self.adopt(state)
        after, result = self._run(kind, step, banked, images, labels)
        banked.arrays = after.arrays
        return result

    def clear_metrics(self, state: State) -> BankState:
        """The state with the epoch's sums at zero."""
        scene = Scene(self.graph.memory[Variant.TRAIN_BASE], self.recipe)
        calls = lower_nodes(scene, self.graph.graph[GraphId.CLEAR_METRICS])

        def clear(banks: Banks) -> tuple[Banks, tuple[()]]:
            return thread(calls, banks, {}, self.plan_launches)[0], ()

        return self._run("clear_metrics", clear, self.adopt(state))[0]

    def executable(self, name: str, shape: Shape) -> Executable:
        """An executable that has run or been compiled, for inspection.

        Raises:
            KeyError: there is none of that name and shape.
        """
        for (held, *batch), executable in self._executables.items():
            if held == name and (batch[0][0] if batch else ()) == tuple(shape):
                return executable
        raise KeyError((name, tuple(shape)))

    def _variant(self, shape: tuple[int, ...], training: bool) -> Variant:
        options = self.config.options
        variants = (v for v in Variant if v.is_training is training)
        return next(v for v in variants if options.shape_id(v) == tuple(shape))

    def _pass(self, variant: Variant, dtype: DType, kind: str) -> FusedPass:
        scene = Scene(self.graph.memory[variant], self.recipe, dtype)
        if kind == "train":
            return train_pass(self.graph, scene)
        return inference_pass(self.graph, scene, ema=kind == "infer_ema")

    def _run(
        self,
        name: str,
        function: Callable[..., tuple[Banks, Any]],
        state: BankState,
        *batch: Any,
        workspace: Callable[[], int] = int,
        traced_for: tuple[Hashable, ...] = (),
    ) -> tuple[BankState, Any]:
        executable = self._executables.get((name, *map(_kind, batch), *traced_for))
        if executable is None:
            if batch:
                batch = (on_device(batch[0]), on_device(batch[1], INT32), *batch[2:])
            key = (name, *map(_kind, batch), *traced_for)
            if key not in self._executables:
                self._executables[key] = self._compile(name, function, state, batch, workspace)
            executable = self._executables[key]
        arrays, result = executable.compiled(state.arrays, *batch)
        return BankState.of_arrays(state.arena, arrays), result

    def _compile(
        self,
        name: str,
        function: Callable[..., tuple[Banks, Any]],
        state: BankState,
        batch: tuple[jax.Array, ...],
        workspace: Callable[[], int],
    ) -> Executable:
        banks = tuple(state.arena.bank_bytes)

        def flat(arrays: tuple[jax.Array, ...], *batch: jax.Array) -> tuple[Any, Any]:
            after, result = function(dict(zip(banks, arrays, strict=True)), *batch)
            return tuple(after[bank] for bank in banks), result

        shape = batch[0].shape if batch else ()
        title = " ".join([name, "x".join(map(str, shape))]).strip()
        leaves = [bank.name for bank in banks]
        executable = aot_compile(title, flat, state.arrays, *batch, leaves=leaves)
        sizes = {bank.name: size for bank, size in self.arena.bank_bytes.items()}
        text = executable.compiled.as_text() or ""
        check_module(title, text, executable.temp_bytes, sizes, workspace())
        return executable


def _kind(array: Any) -> tuple[Any, Any]:
    """Shape and type; of what has none, such as a list, nothing that an executable is kept for."""
    return getattr(array, "shape", None), getattr(array, "dtype", None)


def launches_for(device: jax.Device) -> PlanLaunches:
    """Registers the custom calls for a device's platform and says how they are launched there.

    Raises:
        NativeError: the native library, or the CUDA compiler, is missing.
        ValueError: the platform is neither the CPU nor CUDA.
    """
    if device.platform == "cpu":
        library.register("cpu")
        return no_launches
    if device.platform == "gpu" and "rocm" not in device.client.platform_version.lower():
        return CudaKernels(device)
    return fail(ValueError, "platform of the fused lowering", device.platform, "cpu or CUDA")


_LIVES_ON = frozenset("BWEAMVSR")
_INTERNAL = frozenset({"bias_correction1", "bias_correction2"})


def _is_exchanged(region: Region, name: str) -> bool:
    """Whether a tensor belongs to the state that both lowerings share."""
    if region.name.startswith(("B_NEXT", "W_EQ")) or region.name.endswith("FP16"):
        return False
    if region is Region.R_PREDICTED_LABEL or name in _INTERNAL:
        return False
    return region.name[0] in _LIVES_ON
