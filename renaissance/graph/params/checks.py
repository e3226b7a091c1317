"""Checks of fields; a message names the record, the field, the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from renaissance.core.errors import check_int, check_real, fail

Check = Callable[[str, Any], Any]


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is a bool; numbers do not pass for one."""
    return value if isinstance(value, bool) else fail(TypeError, name, value, "True or False")


positive: Check = partial(check_int, low=1)
non_negative: Check = partial(check_int, low=0)
momentum: Check = partial(check_real, low=0.0, high=1.0)
epsilon: Check = partial(check_real, low=0.0, open_low=True)
BATCH_NORM: dict[str, Check] = {"momentum": momentum, "eps": epsilon}


def check_fields(record: Any, **checks: Check) -> None:
    """Replace each named field by its checked and normalised value."""
    for field, check in checks.items():
        value = check(f"{record.label} {field}", getattr(record, field))
        object.__setattr__(record, field, value)


def check_window(label: str, kernel: int, pad: int) -> None:
    """A pooling window must always cover at least one real pixel."""
    if 2 * pad > kernel:
        fail(ValueError, f"{label} pad", pad, f"at most half the window: {kernel} // 2")
