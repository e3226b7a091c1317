"""The life of a task: PLANNING, then MEMORY_LOCKED, then COMPILED; one way only."""

from __future__ import annotations

from typing import NoReturn

from renaissance.core.errors import PhaseError
from renaissance.core.types import Phase

_REMEDY = {
    Phase.PLANNING: "configure before finalize_memory() and compile(), or make a new task",
    Phase.MEMORY_LOCKED: "call finalize_memory() first, once",
    Phase.COMPILED: "call compile() first",
}


class TaskBase:
    """Keeps the phase of a task and refuses calls that come in the wrong one.

    Attributes:
        name: What the task calls itself in messages and in its run directory.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._phase = Phase.PLANNING

    @property
    def phase(self) -> Phase:
        """Where in its life the task is."""
        return self._phase

    def require(self, phase: Phase, call: str) -> None:
        """Go on only in ``phase``.

        Args:
            phase: The one phase in which ``call`` makes sense.
            call: Name of the call, for the message.

        Raises:
            PhaseError: names the call, the phase it came in, and what to do.
        """
        if self._phase is not phase:
            self._refuse(call, phase)

    def _advance(self, call: str, phase: Phase) -> None:
        before = Phase(phase - 1)
        if self._phase is not before:
            self._refuse(call, before)
        self._phase = phase

    def finalize_memory(self) -> None:
        """Lock the memory: what is configured stands, and nothing is allocated after this.

        Raises:
            PhaseError: the task has left PLANNING.
        """
        self._advance("finalize_memory", Phase.MEMORY_LOCKED)

    def _refuse(self, call: str, phase: Phase) -> NoReturn:
        raise PhaseError(
            f"{call} came in phase {self._phase.name} of task {self.name!r}, but belongs to "
            f"{phase.name}: {_REMEDY[phase]}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._phase.name})"
