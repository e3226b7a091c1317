"""Small programs and random batches for the tests of this room."""

from __future__ import annotations

from typing import Any

import numpy as np

import renaissance as rn

CLASSES = 5
SHAPE = (6, 6, 3)


def small_net() -> rn.Layer:
    """A net with every family of tensors: convolution, batch norm, fc with bias."""
    return rn.seq(rn.conv(8, 3, 1, 1), rn.bn(), rn.relu(), rn.gap(), rn.fc(CLASSES))


def small_program(batch: int = 8, **options: Any) -> rn.Program:
    """The small net compiled with momentum SGD at a constant rate."""
    defaults: dict[str, Any] = {
        "optimizer": rn.SGD(momentum=0.9, weight_decay=1e-3),
        "scheduler": rn.Constant(0.05),
    }
    return rn.compile(small_net(), SHAPE, batch, **{**defaults, **options})


def random_batch(
    seed: int, batch: int = 8, shape: tuple[int, int, int] = SHAPE
) -> tuple[np.ndarray, np.ndarray]:
    """Normal images and uniform labels."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((batch, *shape)).astype(np.float32)
    return images, rng.integers(0, CLASSES, batch).astype(np.int32)


def bits(state: Any) -> dict[str, bytes]:
    """The bytes of every tensor of a state."""
    return {f"{r.name}/{n}": np.array(v).tobytes() for r, n, v in state.named_leaves()}
