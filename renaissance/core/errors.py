"""Errors that name the offending value, where it is, and what would be right."""

from __future__ import annotations

from typing import Any, NoReturn


class RenaissanceError(Exception):
    """Base of every error raised by the framework on purpose."""


class PhaseError(RenaissanceError, RuntimeError):
    """A call came in the wrong phase of a task's life (configure, compile, run)."""


class ShapeError(RenaissanceError, ValueError):
    """A layer cannot take the shape it is given."""


class PlanError(RenaissanceError, ValueError):
    """A memory plan or a graph breaks one of its own rules."""


class FormatError(RenaissanceError, ValueError):
    """A file is not what it claims to be."""


class NativeError(RenaissanceError, RuntimeError):
    """The native library is missing, of another version, or refused a call."""


class TrainingDiverged(RenaissanceError, RuntimeError):
    """Too many steps in a row overflowed."""


def fail(kind: type[Exception], what: str, value: Any, expected: str) -> NoReturn:
    """Raise ``kind`` with one sentence: what was given, and what would be right."""
    raise kind(f"{what} is {value!r}, expected {expected}")


def check_int(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return ``value`` if it is an integer in ``[low, high]``; bool is not an integer here."""
    span = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        fail(TypeError, name, value, span)
    value = value.__index__()
    if value < low or (high is not None and value > high):
        fail(ValueError, name, value, span)
    return int(value)


def check_real(
    name: str,
    value: Any,
    low: float = float("-inf"),
    high: float = float("inf"),
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``float(value)`` if it is a finite number in the interval."""
    left, right = ("(" if open_low else "["), (")" if open_high else "]")
    span = f"a finite number in {left}{low:g}, {high:g}{right}"
    if high == float("inf"):
        span = f"a finite number {'>' if open_low else '>='} {low:g}"
    if low == float("-inf"):
        span = "a finite number"
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        fail(TypeError, name, value, span)
    number = float(value)
    inside = (number > low if open_low else number >= low) and (
        number < high if open_high else number <= high
    )
    if not inside or number in (float("inf"), float("-inf")):
        fail(ValueError, name, value, span)
    return number
