"""Gradient clipping, and the norm that neither overflows nor underflows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from renaissance.core.errors import check_real


def scaled_norm(tensors: Sequence[Any], *, xp: Any = np) -> tuple[Any, Any]:
    """The Euclidean norm over all elements of all tensors, as a pair ``(norm * s, s)``.

    ``s`` is a power of two that brings squares into range: 1 for ordinary tensors, ``2**-100``
    where the largest float32 element exceeds ``2**50``, ``2**100`` where it is below ``2**-50``
    (float64: 800 and 400). It rounds nothing: where the plain formula is in range this one has the
    same bits.

    Args:
        tensors: At least one float32 or float64 array, all of one dtype.
        xp: Array namespace, ``numpy`` or ``jax.numpy``.

    Returns:
        Two scalars of that dtype: the norm of the scaled elements, and the scale ``s``.

    Source: Blue, "A portable Fortran program to find the Euclidean norm of a vector", 1978.
    """
    largest = reduce(xp.maximum, [xp.max(xp.abs(x), initial=0.0) for x in tensors])
    limit = 25 * np.finfo(largest.dtype).maxexp // 64
    shrink, grow = (xp.asarray(2.0**e, largest.dtype) for e in (-2 * limit, 2 * limit))
    scale = xp.where(largest < 2.0**-limit, grow, xp.ones_like(largest))
    scale = xp.where(largest > 2.0**limit, shrink, scale)
    squares = xp.stack([xp.sum(xp.square(x * scale)) for x in tensors])
    return xp.sqrt(xp.sum(squares)), scale


def norm(x: Any, *, xp: Any = np) -> Any:
    """The Euclidean norm of one tensor, right for any finite input whose norm is representable.

    Args:
        x: float32 or float64 array.
        xp: Array namespace.

    Returns:
        A scalar of the dtype of ``x``.
    """
    scaled, scale = scaled_norm((x,), xp=xp)
    return scaled / scale


@dataclass(frozen=True, slots=True)
class ClipByValue:
    """Clamp every element of the unscaled gradient to ``[-max_abs, max_abs]``.

    Args:
        max_abs: Largest magnitude, > 0.
    """

    max_abs: float

    def __post_init__(self) -> None:
        check_real("ClipByValue max_abs", self.max_abs, 0, open_low=True)

    def clip(self, gradients: Sequence[Any], *, xp: Any = np) -> list[Any]:
        """The clipped gradients, same shapes and dtypes.

        Args:
            gradients: Arrays of all trainable tensors.
            xp: Array namespace.
        """
        return [xp.clip(g, -self.max_abs, self.max_abs) for g in gradients]


@dataclass(frozen=True, slots=True)
class ClipByGlobalNorm:
    """Scale all gradients together so that their joint Euclidean norm is at most ``max_norm``.

    Gradients whose norm is within the limit keep their bits.

    Args:
        max_norm: Largest norm, > 0.

    Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks",
    2013.
    """

    max_norm: float

    def __post_init__(self) -> None:
        check_real("ClipByGlobalNorm max_norm", self.max_norm, 0, open_low=True)

    def clip(self, gradients: Sequence[Any], *, xp: Any = np) -> list[Any]:
        """The clipped gradients, same shapes and dtypes.

        Args:
            gradients: Arrays of all trainable tensors, one dtype.
            xp: Array namespace.
        """
        if not gradients:
            return []
        scaled, scale = scaled_norm(gradients, xp=xp)
        # the norm itself may exceed the dtype (100 gradients of 1e38): compare in scaled units
        exceeds = scaled / self.max_norm > scale
        factor = self.max_norm / xp.where(exceeds, scaled, 1.0)
        return [xp.where(exceeds, (g * scale) * factor, g) for g in gradients]


Clip: TypeAlias = ClipByValue | ClipByGlobalNorm
"""Either way of clipping."""
