"""Ahead-of-time compiled executables with donated state, and the proof that donation held.

An executable is compiled once for fixed shapes. Its first argument, the state, is donated: every
leaf of the state that comes back lies in the memory of the leaf that went in. XLA treats donation
as a wish; :func:`alias_map` reads back what it granted, :func:`check_donation` refuses less.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from renaissance.core.errors import PlanError
from renaissance.runtime import xla_cache

logger = logging.getLogger("renaissance")

_ALIAS = re.compile(r"\{\s*([\d,\s]*)\}:\s*\((\d+),\s*\{[\d,\s]*\},\s*(may|must)-alias\)")


@dataclass(frozen=True)
class Executable:
    """A compiled function of fixed shapes whose first argument is donated.

    Attributes:
        name: What it is, for messages: ``"train_step 200x28x28x1"``.
        compiled: The underlying :class:`jax.stages.Compiled`.
        state_paths: Names of the state's leaves, in order.
    """

    name: str
    compiled: jax.stages.Compiled
    state_paths: tuple[str, ...]

    def __call__(self, state: Any, *args: Any) -> Any:
        """Run on arrays of exactly the compiled shapes; ``state`` must not be used afterwards."""
        return self.compiled(state, *args)

    @property
    def temp_bytes(self) -> int:
        """Device memory XLA sets aside for intermediates."""
        analysis = self.compiled.memory_analysis()
        return int(analysis.temp_size_in_bytes) if analysis is not None else 0


def aot_compile(
    name: str,
    function: Callable[..., Any],
    state: Any,
    *args: Any,
    donates: bool = True,
    leaves: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile ``function(state, *args)`` for the shapes given, donating ``state``.

    Args:
        name: For messages.
        function: Pure function; with ``donates`` its first result has the structure of ``state``.
        state: The state or a tree of :class:`jax.ShapeDtypeStruct` of its leaves.
        args: Remaining arguments or their shapes.
        donates: Whether ``state`` is given up (inference only reads it).
        leaves: Names of the state's leaves for messages; default their places in the tree.
        options: Of XLA's compiler; where it does not know one of them, it compiles without any.

    Raises:
        PlanError: a leaf of the state was not aliased to its own input.
    """
    xla_cache.enable()
    # dropping an unused leaf would shift the donations of all leaves after it
    jitted = jax.jit(function, donate_argnums=(0,) if donates else (), keep_unused=True)
    lowered = jitted.lower(state, *args)
    try:
        compiled = lowered.compile(dict(options or {}))
    except jax.errors.JaxRuntimeError as reason:
        if not options:
            raise
        logger.warning("%s: compiled without XLA's options %s: %s", name, dict(options), reason)
        compiled = lowered.compile()
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    paths = tuple(leaves) or tuple(jax.tree_util.keystr(path) for path, _ in flat)
    executable = Executable(name, compiled, paths)
    if donates:
        check_donation(executable)
    return executable


def alias_map(compiled: jax.stages.Compiled) -> dict[int, int]:
    """Read which flat output of a compiled module lies in which flat input's memory."""
    header = (compiled.as_text() or "").split("\n", 1)[0]
    pairs: dict[int, int] = {}
    for output, parameter, _ in _ALIAS.findall(header):
        index = output.strip()
        pairs[int(index) if index else 0] = int(parameter)
    return pairs


def check_donation(executable: Executable) -> None:
    """Prove that every leaf of the state aliases its own input.

    Raises:
        PlanError: names the first leaf that was copied, and how many were.
    """
    granted = alias_map(executable.compiled)
    missed = [i for i in range(len(executable.state_paths)) if granted.get(i) != i]
    if missed:
        raise PlanError(
            f"{executable.name}: state leaf {executable.state_paths[missed[0]]} is aliased to "
            f"input {granted.get(missed[0])}, expected its own input {missed[0]} "
            f"({len(missed)} of {len(executable.state_paths)} leaves are not donated)"
        )
