"""Where a task runs: the device its settings ask for, and the arithmetic they allow there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from renaissance.core.errors import fail
from renaissance.core.settings import GlobalSettings

_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def pick_device(settings: GlobalSettings) -> Any:
    """The jax device of a task.

    Raises:
        ValueError: There is no such device; or reproducible runs are asked for on a GPU whose
            compiler has not been told.
    """
    if settings.device == "cpu":
        return jax.devices("cpu")[0]
    if settings.device == "auto":
        device = jax.devices()[0]
    else:
        try:
            gpus = jax.devices("gpu")
        except RuntimeError:
            gpus = []
        wanted = settings.gpu_ids[0]
        if wanted >= len(gpus):
            found = ", ".join(str(d) for d in jax.devices())
            fail(ValueError, "use_gpu", wanted, f"a GPU that jax sees; it sees {found}")
        device = gpus[wanted]
    told = _DETERMINISTIC in os.environ.get("XLA_FLAGS", "")
    if settings.reproducible and device.platform == "gpu" and not told:
        fail(
            ValueError,
            "XLA_FLAGS",
            os.environ.get("XLA_FLAGS", ""),
            f"{_DETERMINISTIC} in it before jax starts, for a reproducible run on a GPU",
        )
    return device


@contextmanager
def on_device(settings: GlobalSettings) -> Iterator[Any]:
    """Run the body on the device of ``settings``, with TF32 if they allow it; yields the device."""
    device = pick_device(settings)
    precision = "tensorfloat32" if settings.use_tf32 else None
    with jax.default_device(device), jax.default_matmul_precision(precision):
        yield device
