"""Loss functions: configuration and the defining formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from renaissance.core.errors import check_real


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Softmax cross entropy with label smoothing.

    The target of a row with label y over K classes is ``(1 - e) onehot(y) + e / K``. The loss of a
    batch is the mean over its real rows; it is accumulated as a sum, so that an epoch's loss does
    not depend on how the epoch was cut into batches.

    Args:
        label_smoothing: ``e`` in [0, 1).

    Source: Szegedy et al., "Rethinking the Inception architecture for computer vision", 2016.
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_real("CrossEntropy label_smoothing", self.label_smoothing, 0, 1, open_high=True)

    def row_losses(self, logits: Any, labels: Any, *, xp: Any = np) -> Any:
        """The loss of every row.

        Args:
            logits: ``[N, K]`` float32 or float64.
            labels: ``[N]`` integers in ``[0, K)``.
            xp: Array namespace, ``numpy`` or ``jax.numpy``.

        Returns:
            ``[N]``, the dtype of ``logits``; finite whenever the logits are.
        """
        shifted = logits - logits.max(axis=-1, keepdims=True)
        log_sum = xp.log(xp.exp(shifted).sum(axis=-1))
        picked = xp.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
        if self.label_smoothing == 0.0:
            return log_sum - picked
        smooth = shifted.mean(axis=-1)
        return log_sum - (1.0 - self.label_smoothing) * picked - self.label_smoothing * smooth

    def logits_gradient(self, logits: Any, labels: Any, *, xp: Any = np) -> Any:
        """Derivative of every row's loss with respect to its logits: softmax minus target.

        Args:
            logits: ``[N, K]``.
            labels: ``[N]`` integers.
            xp: Array namespace.

        Returns:
            ``[N, K]``; divide by the number of real rows for the gradient of the mean.
        """
        classes = logits.shape[-1]
        shifted = xp.exp(logits - logits.max(axis=-1, keepdims=True))
        softmax = shifted / shifted.sum(axis=-1, keepdims=True)
        onehot = (labels[:, None] == xp.arange(classes)).astype(logits.dtype)
        e = self.label_smoothing
        return softmax - ((1.0 - e) * onehot + e / classes)
