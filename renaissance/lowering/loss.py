"""Softmax cross entropy with label smoothing, and the top-k hits of a batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from renaissance.core.errors import ShapeError, check_int, check_real, fail
from renaissance.lowering.checks import accumulator, check_floating


def softmax_cross_entropy(logits: Any, labels: Any, *, label_smoothing: float = 0.0) -> jax.Array:
    """Mean cross entropy of a batch against smoothed labels.

    Per row ``logsumexp(z) - sum over k of target[k] z[k]`` with
    ``target = (1 - label_smoothing) onehot + label_smoothing / K``.

    Args:
        logits: ``(N, K)`` or ``(N, 1, 1, K)``, fp16, fp32 or fp64; evaluated in fp32 or better.
        labels: ``(N,)`` integers in [0, K). A label outside makes the loss NaN.
        label_smoothing: In [0, 1).

    Returns:
        Scalar, fp32 (fp64 for fp64 logits): the mean over rows.

    Raises:
        ShapeError: the shapes do not fit.
        TypeError: logits are not floating or labels not integers.
        ValueError: ``label_smoothing`` is out of range.

    Source: Szegedy et al. 2015, "Rethinking the Inception architecture" (section 7).
    """
    return jnp.mean(cross_entropy_rows(logits, labels, label_smoothing=label_smoothing))


def cross_entropy_rows(logits: Any, labels: Any, *, label_smoothing: float = 0.0) -> jax.Array:
    """Cross entropy of every row; see :func:`softmax_cross_entropy`.

    Args:
        logits: ``(N, K)`` or ``(N, 1, 1, K)``.
        labels: ``(N,)`` integers in [0, K). A label outside makes its row NaN.
        label_smoothing: In [0, 1).

    Returns:
        ``(N,)``, fp32 (fp64 for fp64 logits).

    Raises:
        As :func:`softmax_cross_entropy`.
    """
    logits, labels = _check(logits, labels)
    smoothing = check_real("label_smoothing", label_smoothing, 0.0, 1.0, open_high=True)
    z = logits.astype(accumulator(logits))
    classes = z.shape[1]
    # Working on z - max keeps the two terms small, so that their difference keeps its digits.
    z = z - jax.lax.stop_gradient(jnp.max(z, 1, keepdims=True))
    normaliser = jnp.log(jnp.sum(jnp.exp(z), 1))
    # A one-hot select instead of a gather: its derivative is element-wise, not a scatter.
    picked = jnp.sum(jnp.where(_is_label(z, labels), z, 0), 1)
    loss = normaliser - (1 - smoothing) * picked
    if smoothing:
        loss = loss - (smoothing / classes) * jnp.sum(z, 1)
    known = (labels >= 0) & (labels < classes)
    return jnp.where(known, loss, jnp.nan)


def top_k_hits(logits: Any, labels: Any, k: int) -> jax.Array:
    """Whether each row's label is among its k best classes.

    A hit if fewer than k classes beat the label. Of equal logits the lower index wins. A row with
    NaN is a miss; k is clamped to the number of classes.

    Args:
        logits: ``(N, K)`` or ``(N, 1, 1, K)``, fp16, fp32 or fp64.
        labels: ``(N,)`` integers; a label outside [0, K) is a miss.
        k: At least 1.

    Returns:
        bool ``(N,)``.

    Raises:
        ShapeError: the shapes do not fit.
        TypeError: logits are not floating or labels not integers.
        ValueError: k is below 1.
    """
    logits, labels = _check(logits, labels)
    k = min(check_int("k", k, 1), logits.shape[1])
    is_label = _is_label(logits, labels)
    own = jnp.sum(jnp.where(is_label, logits, 0), 1, keepdims=True)
    earlier = jnp.arange(logits.shape[1])[None, :] < labels[:, None]
    beaten_by = jnp.sum((logits > own) | ((logits == own) & earlier), 1)
    valid = jnp.any(is_label, 1) & ~jnp.any(jnp.isnan(logits), 1)
    return valid & (beaten_by < k)


def predicted_labels(logits: Any) -> jax.Array:
    """The best class of each row; of equal logits the lower index wins.

    Args:
        logits: ``(N, K)`` or ``(N, 1, 1, K)``, fp16, fp32 or fp64.

    Returns:
        int32 ``(N,)``; the first NaN's index in a row that holds one.

    Raises:
        ShapeError: the shape does not fit.
        TypeError: logits are not floating.
    """
    return jnp.argmax(_check_logits(logits), 1).astype(jnp.int32)


def _check_logits(logits: Any) -> jax.Array:
    logits = check_floating("logits", logits)
    if logits.ndim == 4 and logits.shape[1:3] == (1, 1):
        logits = logits.reshape(logits.shape[0], logits.shape[3])
    if logits.ndim != 2 or 0 in logits.shape:
        fail(ShapeError, "shape of logits", tuple(logits.shape), "a non-empty (N, K)")
    return logits


def _check(logits: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
    logits = _check_logits(logits)
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        fail(TypeError, "dtype of labels", str(labels.dtype), "an integer type")
    if labels.shape != (logits.shape[0],):
        fail(ShapeError, "shape of labels", tuple(labels.shape), f"({logits.shape[0]},)")
    return logits, labels


def _is_label(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.arange(logits.shape[1])[None, :] == labels[:, None]
