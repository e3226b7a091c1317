"""The only place where a custom call is made.

An operation has a fixed order of operands (its record in ``csrc/operations.h``). Called
*functionally* they are arrays in and out. Called *in place* they are byte offsets into banks:
every bank that the call touches is passed exactly once and aliased to the result of the same index,
also where it is only read, so that XLA never has a reason to copy one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from renaissance.core.types import DType
from renaissance.lowering.calls.targets import Launch, Target

TYPE_NUMBERS = {DType.FP32: 0, DType.FP16: 1}
ACTIVATION_NUMBERS = {
    None: 0,
    "relu": 1,
    "relu6": 2,
    "leaky_relu": 3,
    "silu": 4,
    "hardswish": 5,
    "elu": 6,
    "sigmoid": 7,
    "tanh": 8,
}
GATED_BY_INPUT = frozenset({"silu", "hardswish"})
"""Activations whose derivative cannot be read off their output."""
RULE_NUMBERS = {"sgd": 0, "momentum": 1, "nesterov": 2, "adam": 3, "adamw": 4}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an in-place operand lies: the index of its bank in the call, and a byte offset."""

    bank: int
    offset: int


@dataclass(frozen=True, slots=True)
class Updated:
    """A functional operand that is read and replaced: its new value is among the results."""

    value: Any


def type_number(dtype: Any) -> int:
    """The native library's number of an element type.

    Raises:
        KeyError: kernels exist for float32 and float16 only.
    """
    return TYPE_NUMBERS[DType(np.dtype(dtype).name)]


def functional(
    target: Target, *operands: Any, launches: Sequence[Launch] = (), **attributes: Any
) -> Any:
    """Call an operation on arrays.

    Args:
        target: The operation.
        operands: In the order of its record: an array (read), a :class:`jax.ShapeDtypeStruct`
            (written), :class:`Updated` (both) or None (left out).
        launches: Its kernels, for CUDA.
        attributes: Sizes (int) and constants (float), by the record's names.

    Returns:
        A tuple of what was written or replaced, in the order of the operands.
    """
    inputs = [o.value if isinstance(o, Updated) else o for o in operands if _is_input(o)]
    results: list[jax.ShapeDtypeStruct] = []
    aliases: dict[int, int] = {}
    at: list[int] = []
    read = 0
    for operand in operands:
        if operand is None:
            at += [-1, 0]
            continue
        if _is_input(operand):
            read += 1
        if _is_input(operand) and not isinstance(operand, Updated):
            at += [read - 1, 0]
            continue
        if isinstance(operand, Updated):
            aliases[read - 1] = len(results)
            operand = jax.typeof(operand.value)
        at += [len(inputs) + len(results), 0]
        results.append(jax.ShapeDtypeStruct(operand.shape, operand.dtype))
    call = jax.ffi.ffi_call(target.name, tuple(results), input_output_aliases=aliases)
    return call(*inputs, **_encoded(at, 0, launches, attributes))


def in_place(
    target: Target,
    banks: Sequence[jax.Array],
    operands: Sequence[Place | None],
    attributes: Mapping[str, Any],
    launches: Sequence[Launch] = (),
    outside: Sequence[jax.Array] = (),
    workspaces: Sequence[int] = (),
) -> tuple[jax.Array, ...]:
    """Call an operation on tensors inside banks.

    Args:
        target: The operation.
        banks: uint8 arrays; every one comes back as a result, in its own memory.
        operands: In the order of the operation's record; None for one left out.
        attributes: Sizes (int) and constants (float), by the record's names.
        launches: Its kernels, for CUDA.
        outside: Arrays from outside the banks, read only; they count on after the banks.
        workspaces: Sizes in bytes of memory the call needs while it runs; they count on after
            the banks' results, which come after ``outside``.

    Returns:
        The banks after the operation, in order.
    """
    at = [n for o in operands for n in ((-1, 0) if o is None else (o.bank, o.offset))]
    results = tuple(jax.ShapeDtypeStruct(bank.shape, bank.dtype) for bank in banks)
    aliases = {index: index for index in range(len(banks))}
    memory = tuple(jax.ShapeDtypeStruct((size,), np.uint8) for size in workspaces)
    call = jax.ffi.ffi_call(target.name, (*results, *memory), input_output_aliases=aliases)
    encoded = _encoded(at, len(banks), launches, attributes)
    return tuple(call(*banks, *outside, **encoded))[: len(banks)]


def _is_input(operand: Any) -> bool:
    return operand is not None and not isinstance(operand, jax.ShapeDtypeStruct)


def _encoded(
    at: list[int], in_place: int, launches: Sequence[Launch], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    encoded: dict[str, Any] = {name: _attribute(value) for name, value in attributes.items()}
    encoded["at"] = np.array(at, np.int64)
    encoded["in_place"] = np.int64(in_place)
    if launches:
        encoded["launches"] = np.array([n for launch in launches for n in launch.numbers], np.int64)
    return encoded


def _attribute(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    return np.float32(value) if isinstance(value, float) else np.int64(value)
