"""A call of the fused lowering before it is emitted, and the threading rule.

Every bank a call touches is taken from the thread once, passed in, aliased out, and put back. No
other operation ever sees a bank, so XLA has nothing to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Bank
from renaissance.lowering.calls import ffi
from renaissance.lowering.calls.targets import Launch, Target

Banks = dict[Bank, jax.Array]


@dataclass(frozen=True, slots=True)
class Location:
    """Bytes of a bank.

    Attributes:
        bank: Which one.
        offset: First byte.
        nbytes: How many the call may touch.
        label: What lies there, for messages: ``"F_FEATURE_FP16 fc1.y"``.
    """

    bank: Bank
    offset: int
    nbytes: int
    label: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An array from outside the banks: the images of a batch, a loop's counter.

    Attributes:
        name: Its name among the arguments of the step.
        written: Whether the call writes it; it then is aliased like a bank.
    """

    name: str
    written: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that a call needs only while it runs, and that no bank holds.

    Attributes:
        nbytes: How much.
    """

    nbytes: int


Operand = Location | Argument | Workspace | None


@dataclass(frozen=True, slots=True)
class InPlaceCall:
    """An operation on tensors inside banks.

    Attributes:
        target: The custom call.
        operands: In the order of the operation's record; None for one left out.
        attributes: Sizes and constants by name.
        where: The layer or sub-graph it works for, for messages.
    """

    target: Target
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    where: str = ""

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The banks it touches, each once."""
        touched = {o.bank for o in self.operands if isinstance(o, Location)}
        return tuple(bank for bank in Bank if bank in touched)

    def __str__(self) -> str:
        return f"{self.target.name} of {self.where}" if self.where else self.target.name


PlanLaunches = Callable[[InPlaceCall], Sequence[Launch]]
"""Gives a call its compiled and loaded kernels; empty where the host implementation runs."""


def no_launches(call: InPlaceCall) -> Sequence[Launch]:
    """For the host platform: the library's own loops run."""
    return ()


def check_places(calls: Iterable[InPlaceCall], bank_bytes: Mapping[Bank, int]) -> None:
    """Prove that no call reaches outside its banks and every operand is aligned.

    Raises:
        PlanError: names the call and the operand.
    """
    for call in calls:
        for operand in call.operands:
            if not isinstance(operand, Location):
                continue
            size = bank_bytes.get(operand.bank, 0)
            if operand.offset % 4 or operand.offset < 0 or operand.offset + operand.nbytes > size:
                span = (operand.offset, operand.offset + operand.nbytes)
                what = f"bytes of {operand.label} in {call}"
                fail(PlanError, what, span, f"aligned and inside the {size} of {operand.bank.name}")


def thread(
    calls: Iterable[InPlaceCall],
    banks: Banks,
    arguments: Mapping[str, jax.Array],
    plan_launches: PlanLaunches = no_launches,
) -> tuple[Banks, dict[str, jax.Array]]:
    """Emit calls one after the other, each on the banks the one before gave back.

    Args:
        calls: In order.
        banks: The arrays of all banks.
        arguments: Arrays from outside the banks, by name.
        plan_launches: The kernels of a call.

    Returns:
        The banks after the last call, and the arguments, those that were written renewed.
    """
    banks, arguments = dict(banks), dict(arguments)
    for call in calls:
        touched = call.banks
        given = tuple(dict.fromkeys(o for o in call.operands if isinstance(o, Argument)))
        written = tuple(a for a in given if a.written)
        read = tuple(a for a in given if not a.written)
        spaces = tuple(o for o in call.operands if isinstance(o, Workspace))
        results_of: tuple[Bank | Argument, ...] = (*touched, *written)
        order: tuple[Bank | Operand, ...] = (*results_of, *read, *results_of, *spaces)
        results = ffi.in_place(
            call.target,
            [*(banks[bank] for bank in touched), *(arguments[a.name] for a in written)],
            [_place(operand, order) for operand in call.operands],
            call.attributes,
            launches=plan_launches(call),
            outside=[arguments[a.name] for a in read],
            workspaces=[space.nbytes for space in spaces],
        )
        banks.update(zip(touched, results, strict=False))
        arguments.update(zip((a.name for a in written), results[len(touched) :], strict=True))
    return banks, arguments


def _place(operand: Operand, order: tuple[Bank | Operand, ...]) -> ffi.Place | None:
    if operand is None:
        return None
    if isinstance(operand, Location):
        return ffi.Place(order.index(operand.bank), operand.offset)
    return ffi.Place(order.index(operand), 0)
