"""Which lowering runs a program: the one asked for, or the best this machine can run."""

from __future__ import annotations

import logging
from typing import Any

import jax

from renaissance.core.errors import RenaissanceError
from renaissance.core.types import Precision
from renaissance.graph.compiler import CompiledGraph
from renaissance.program.config import ProgramConfig
from renaissance.program.xla import XlaBackend

logger = logging.getLogger("renaissance")


def choose_backend(config: ProgramConfig, graph: CompiledGraph) -> Any:
    """The backend for ``config.lowering``.

    ``"auto"`` is fused for mixed precision on a CUDA device that can run every operation of the
    network, else XLA; why it is not fused is logged in a sentence. In fp32 XLA is the faster one
    (H200, MLP of batch 200: 159 against 262 us a step), and on a CPU the fused lowering's host
    implementation is for tests.

    Raises:
        NativeError, PlanError, ValueError: ``"fused"`` was asked for and cannot run.
    """
    if config.lowering == "xla":
        return XlaBackend(config, graph)
    if config.lowering == "fused" or config.loop == "persistent":
        return _fused(config, graph)
    if jax.default_backend() != "gpu" or config.precision is not Precision.AMP:
        return XlaBackend(config, graph)
    try:
        return _fused(config, graph)
    except (RenaissanceError, ValueError) as reason:
        logger.warning("running the XLA lowering, because the fused one cannot: %s", reason)
        return XlaBackend(config, graph)


def _fused(config: ProgramConfig, graph: CompiledGraph) -> Any:
    from renaissance.program.fused import FusedBackend

    return FusedBackend(config, graph)
