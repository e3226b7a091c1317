"""Every operation a graph may hold, and the roles of its operands: one table.

A name here becomes the name of a custom call (``fc_forward`` -> ``rn_fc_forward``) and of its host
and device implementations. Roles speak the field's language: x, y, dx, dy, w, dw. A role followed
by ``?`` may be absent; its absence is known at compile time.

Conventions:

- ``activation`` is a parameter (``"relu"``...), None where there is none. Where it is set on a
  forward operation it acts last; ``z`` then is the value before it, written only for activations
  whose derivative needs it (silu, hardswish).
- ``fc_backward_data`` with an ``activation`` multiplies dx by the derivative at ``y`` or ``z``,
  output or input of the activation that made x; ``activation_backward`` does only that.
- ``batch_norm_*_backward`` with an ``activation`` differentiates it first: at ``y`` or ``z`` where
  given, else at the normalised x, computed again. Where its slope is 0 or 1, ``mask`` stands for
  them: a byte for eight neighbouring channels, whose bit c % 8 is the slope at channel c.
- ``mean`` and ``inverse_std`` are this batch's, ``next_mean`` and ``next_var`` the running
  statistics the step will adopt.
- ``workspace`` is scratch of one operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from renaissance.core.errors import PlanError, fail


@dataclass(frozen=True, slots=True)
class Operation:
    """The signature of an operation.

    Attributes:
        name: Its name.
        reads: Roles it must read.
        may_read: Roles it may read.
        writes: Roles it must write.
        may_write: Roles it may write.
        open: Whether further roles are allowed (operations of layers from outside the package).
    """

    name: str
    reads: frozenset[str]
    may_read: frozenset[str]
    writes: frozenset[str]
    may_write: frozenset[str]
    open: bool = False


def _operation(name: str, reads: str, writes: str, *, open: bool = False) -> Operation:
    def split(roles: str) -> tuple[frozenset[str], frozenset[str]]:
        names = roles.split()
        optional = frozenset(role[:-1] for role in names if role.endswith("?"))
        return frozenset(role for role in names if not role.endswith("?")), optional

    return Operation(name, *split(reads), *split(writes), open=open)


_STATISTICS = "mean inverse_std next_mean next_var"
_ROWS = "loss top1 top5 count"

_COMPUTE = (
    # fully connected: y = act(x w^T + bias)
    _operation("fc_forward", "x w bias?", "y z?"),
    _operation("fc_backward_data", "dy w y? z?", "dx"),
    _operation("fc_backward_weight", "x dy", "dw dbias?"),
    # global average pool and fully connected as one; pooled is kept for the weight's gradient
    _operation("gap_fc_forward", "x w bias?", "y pooled?"),
    _operation("gap_fc_backward_data", "dy w", "dx"),
    # convolutions: dense, depthwise, grouped
    *(
        operation
        for conv in ("conv", "depthwise_conv", "group_conv")
        for operation in (
            _operation(f"{conv}_forward", "x w", "y workspace?"),
            # the epilogue reduces y to the statistics of the batch norm that follows
            _operation(
                f"{conv}_statistics_forward",
                "x w prev_mean prev_var",
                f"y {_STATISTICS} partial workspace?",
            ),
            # inference: y = act(conv(x, w) scale + bias + shortcut)
            _operation(f"{conv}_affine_forward", "x w scale bias shortcut?", "y workspace?"),
            _operation(f"{conv}_backward_data", "dy w", "dx workspace?"),
            _operation(f"{conv}_backward_weight", "x dy", "dw workspace?"),
        )
    ),
    # batch norm: y = act((x - mean) inverse_std gamma + beta)
    _operation("batch_norm_forward", "x gamma beta prev_mean prev_var", f"y {_STATISTICS} partial"),
    _operation(
        "batch_norm_backward",
        "x dy addend? gamma beta mean inverse_std",
        "dx? dgamma dbeta partial",
    ),
    _operation("batch_norm_apply", "x gamma beta mean inverse_std", "y"),
    # y = act(norm(x) + shortcut); the shortcut is a feature, or itself still to be normalised
    _operation(
        "batch_norm_add_forward",
        "x gamma beta mean inverse_std shortcut "
        "shortcut_gamma? shortcut_beta? shortcut_mean? shortcut_inverse_std?",
        "y z? mask?",
    ),
    _operation(
        "batch_norm_add_backward",
        "dy addend? x gamma beta mean inverse_std y? z? mask? shortcut? "
        "shortcut_gamma? shortcut_beta? shortcut_mean? shortcut_inverse_std?",
        "dx? dgamma dbeta dshortcut? dshortcut_gamma? dshortcut_beta? partial",
    ),
    # y = max_pool(act(norm(x))): the map between is never stored; without argmax the winners are
    # searched again in x
    _operation("batch_norm_max_pool_forward", "x gamma beta mean inverse_std", "y argmax?"),
    _operation(
        "batch_norm_max_pool_backward",
        "dy argmax? x gamma beta mean inverse_std",
        "dx? dgamma dbeta partial",
    ),
    _operation("batch_norm_fold", "gamma beta mean var", "scale bias"),
    _operation("affine_forward", "x scale bias", "y"),
    # element by element
    _operation("activation_forward", "x", "y"),
    _operation("activation_backward", "dy y? z?", "dx"),
    _operation("dropout_forward", "x seed applied_steps skipped_steps", "y mask"),
    _operation("dropout_backward", "dy mask", "dx"),
    _operation("add_forward", "main shortcut", "y z?"),
    _operation("gradient_sum", "a b", "dx"),
    _operation("copy", "x", "y"),
    # pooling and padding
    _operation("max_pool_forward", "x", "y argmax?"),
    _operation("max_pool_backward", "dy argmax", "dx"),
    _operation("average_pool_forward", "x", "y"),
    _operation("average_pool_backward", "dy", "dx"),
    _operation("global_average_pool_forward", "x", "y"),
    _operation("global_average_pool_backward", "dy", "dx"),
    _operation("channel_padding_forward", "x", "y"),
    _operation("channel_padding_backward", "dy", "dx"),
    # loss: sums over the rows; dlogits is the gradient of loss_scale * mean loss
    _operation(
        "softmax_cross_entropy_forward_backward",
        "logits labels loss_scale",
        f"dlogits {_ROWS} rows",
    ),
    _operation("softmax_cross_entropy_forward", "logits labels", f"{_ROWS} predicted rows"),
    # layers registered from outside: roles are those of the layer's own tensors
    _operation("layer_forward", "x", "y", open=True),
    _operation("layer_backward", "x y dy", "dx?", open=True),
    _operation("layer_inference", "x", "y", open=True),
    # scalars of a step
    _operation(
        "set_step_scalars",
        "lr_table applied_steps",
        "lr bias_correction1 bias_correction2 nan_flag",
    ),
    _operation(
        "advance_counters",
        "nan_flag loss_scale applied_steps skipped_steps clean_steps overflow_run",
        "loss_scale applied_steps skipped_steps clean_steps overflow_run",
    ),
)

_RANGE = (
    _operation("clear", "", "target"),
    _operation("cast", "source", "target"),
    _operation("transfer", "", "target"),
    _operation("all_reduce_sum", "target", "target"),
    _operation("all_reduce_mean", "target", "target"),
    _operation("check_and_unscale", "target loss_scale nan_flag", "target nan_flag partial"),
    _operation("update_statistics", "source nan_flag", "target"),
    _operation(
        "optimizer_update",
        "w g m? v? lr bias_correction1 bias_correction2 nan_flag",
        "w m? v?",
    ),
    _operation("lars_norms", "w g nan_flag", "n partial"),
    _operation("lars_update", "w g m? n lr nan_flag", "w m?"),
    _operation("ema_update", "source target nan_flag", "target"),
    _operation("accumulate", "source target nan_flag?", "target"),
)

COMPUTE_OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _COMPUTE}
"""Operations of COMPUTE nodes by name."""

RANGE_OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _RANGE}
"""Operations of RANGE nodes by name."""

OPERATIONS: dict[str, Operation] = COMPUTE_OPERATIONS | RANGE_OPERATIONS
"""The whole vocabulary."""


def check_operation(op: str, layer: str, reads: Iterable[str], writes: Iterable[str]) -> None:
    """Refuse a node whose name or roles the vocabulary does not know.

    Raises:
        PlanError: names the operation, the layer and the role.
    """
    operation = OPERATIONS.get(op)
    where = f" of {layer}" if layer else ""
    if operation is None:
        fail(PlanError, f"operation{where}", op, f"one of {sorted(OPERATIONS)}")
    sides = (
        ("reads", operation.reads, operation.may_read, frozenset(reads)),
        ("writes", operation.writes, operation.may_write, frozenset(writes)),
    )
    for verb, required, optional, given in sides:
        if not required <= given:
            fail(
                PlanError,
                f"what {op}{where} {verb}",
                sorted(given),
                f"also {sorted(required - given)}",
            )
        if not operation.open and not given <= required | optional:
            allowed = sorted(required | optional)
            fail(PlanError, f"what {op}{where} {verb}", sorted(given), f"roles among {allowed}")
