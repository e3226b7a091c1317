"""What the lowering and the runtime agree on: the names of custom calls, and how kernels are named.

Nothing but plain data: a program can be lowered, read and tested where no library was built.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A custom call.

    Attributes:
        name: The name XLA knows it by.
        cuda: Whether there is a CUDA handler beside the host one.
    """

    name: str
    cuda: bool = True


@dataclass(frozen=True, slots=True)
class Kernel:
    """A CUDA kernel, specialised with constants of the plan.

    Attributes:
        source: File in ``csrc/kernels``; it holds ``extern "C" __global__`` functions.
        name: The function's name.
        constants: Macros defined for the compiler, sorted by name; a string lists several numbers.
        architecture: The only one it compiles for; empty for any.
    """

    source: str
    name: str
    constants: tuple[tuple[str, int | str], ...] = ()
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that is compiled and loaded, and the grid it is launched with.

    Attributes:
        key: What the native library knows the loaded kernel by.
        grid: Blocks in x, y and z.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory of a block.
    """

    key: int
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """The six numbers the handler reads."""
        return (self.key, *self.grid, self.threads, self.shared_bytes)


CONVOLUTION_KINDS = ("forward", "backward_data", "backward_weight", "forward_statistics")


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution that a library runs: all that its plan depends on.

    It is launched by its plan's key alone, with an empty grid.

    Attributes:
        kind: One of :data:`CONVOLUTION_KINDS`.
        type: Element type: 0 for fp32, 1 for fp16.
        y_type: That of a forward pass's output.
        sizes: n, h, w, c, k, p, q, r, s, stride, pad, groups.
        workspace_bytes: Scratch memory it may take.
    """

    kind: str
    type: int
    y_type: int
    sizes: tuple[int, ...]
    workspace_bytes: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The integers that ``csrc/cudnn/graph.h`` reads."""
        kind = CONVOLUTION_KINDS.index(self.kind)
        return (kind, self.type, self.y_type, *self.sizes, self.workspace_bytes)

    def __str__(self) -> str:
        n, h, w, c, k, p, q, r, s, stride, pad, groups = self.sizes
        types = "to".join(dict.fromkeys(("fp32", "fp16")[t] for t in (self.type, self.y_type)))
        return (
            f"{self.kind} {types} {n}x{h}x{w}x{c} to {p}x{q}x{k}, {r}x{s}, stride {stride}, "
            f"pad {pad}, groups {groups}, workspace {self.workspace_bytes}"
        )


PHILOX_UNIFORM = Target("rn_philox_uniform", cuda=False)
FC_FORWARD = Target("rn_fc_forward")
FC_BACKWARD = Target("rn_fc_backward")
ACTIVATION_FORWARD = Target("rn_activation_forward")
ACTIVATION_BACKWARD = Target("rn_activation_backward")
SOFTMAX_CROSS_ENTROPY = Target("rn_softmax_cross_entropy")
DROPOUT_FORWARD = Target("rn_dropout_forward")
DROPOUT_BACKWARD = Target("rn_dropout_backward")
CAST = Target("rn_cast")
CLEAR = Target("rn_clear")
COPY = Target("rn_copy")
LOAD_BATCH = Target("rn_load_batch")
AUGMENT_BATCH = Target("rn_augment_batch")
CHECK_AND_UNSCALE = Target("rn_check_and_unscale")
CHECK_FINITE = Target("rn_check_finite")
CLIP_BY_NORM = Target("rn_clip_by_norm")
EMA_UPDATE = Target("rn_ema_update")
ACCUMULATE = Target("rn_accumulate")
OPTIMIZER = Target("rn_optimizer")
LARS_NORMS = Target("rn_lars_norms")
LARS_UPDATE = Target("rn_lars_update")
SET_STEP_SCALARS = Target("rn_set_step_scalars")
ADVANCE_COUNTERS = Target("rn_advance_counters")
REPORT_METRICS = Target("rn_report_metrics")
BEGIN_STEP = Target("rn_begin_step")
END_STEP = Target("rn_end_step")
MLP_TRAIN_STEPS = Target("rn_mlp_train_steps")
CONV_FORWARD = Target("rn_conv_forward")
CONV_FORWARD_STATISTICS = Target("rn_conv_forward_statistics")
CONV_BACKWARD_DATA = Target("rn_conv_backward_data")
CONV_BACKWARD_DATA_NORM = Target("rn_conv_backward_data_norm")
CONV_BACKWARD_WEIGHT = Target("rn_conv_backward_weight")
POINTWISE_FORWARD = Target("rn_pointwise_forward")
DEPTHWISE_CONV_FORWARD = Target("rn_depthwise_conv_forward")
DEPTHWISE_CONV_BACKWARD_DATA = Target("rn_depthwise_conv_backward_data")
DEPTHWISE_CONV_BACKWARD_WEIGHT = Target("rn_depthwise_conv_backward_weight")
DEPTHWISE_NORM_FORWARD = Target("rn_depthwise_norm_forward")
DEPTHWISE_CONV_BACKWARD = Target("rn_depthwise_conv_backward")
BATCH_NORM_STATISTICS = Target("rn_batch_norm_statistics")
BATCH_NORM_APPLY = Target("rn_batch_norm_apply")
BATCH_NORM_BACKWARD = Target("rn_batch_norm_backward")
BATCH_NORM_FOLD = Target("rn_batch_norm_fold")
POINTWISE_BACKWARD_DATA = Target("rn_pointwise_backward_data")
POINTWISE_BACKWARD = Target("rn_pointwise_backward")
AFFINE_FORWARD = Target("rn_affine_forward")
ADD_FORWARD = Target("rn_add_forward")
MAX_POOL_FORWARD = Target("rn_max_pool_forward")
MAX_POOL_BACKWARD = Target("rn_max_pool_backward")
AVERAGE_POOL_FORWARD = Target("rn_average_pool_forward")
AVERAGE_POOL_BACKWARD = Target("rn_average_pool_backward")
GLOBAL_AVERAGE_POOL_FORWARD = Target("rn_global_average_pool_forward")
GLOBAL_AVERAGE_POOL_BACKWARD = Target("rn_global_average_pool_backward")
GAP_FC_BACKWARD_DATA = Target("rn_gap_fc_backward_data")
CHANNEL_PADDING = Target("rn_channel_padding")

TARGETS: tuple[Target, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Target))
"""Every target of the native library."""
