"""Reads a compiled module back: whether XLA kept its hands off the banks.

Donation is a wish, and an alias map that looks right does not exclude a copy inside the module. So
the text of the optimised module is searched for any operation that makes a value as large as a bank
and is neither a custom call of ours nor a mere renaming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from renaissance.core.errors import PlanError

# Operations that carry a bank along without touching its bytes.
_CARRIERS = frozenset(
    {"parameter", "custom-call", "get-tuple-element", "tuple", "while", "call", "bitcast",
     "conditional", "opt-barrier", "async-start", "async-done", "async-update"}
)  # fmt: skip
_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.+?) ([\w\-]+)\((.*)$")
_TARGET = re.compile(r'custom_call_target="([^"]+)"')

TEMP_LIMIT = 64 * 1024
"""Bytes XLA may set aside for loop counters and the like."""
TEMP_OF_CALL = 512
"""And for each custom call: on a GPU the tuple of its results is a table of pointers."""


def check_module(
    title: str, text: str, temp_bytes: int, banks: Mapping[str, int], workspace: int = 0
) -> None:
    """Refuse a module that copies a bank or keeps memory of its own.

    Args:
        title: What the module is, for messages.
        text: The optimised module as text.
        temp_bytes: Device memory it sets aside.
        banks: Size in bytes of every bank, by name.
        workspace: Bytes that its calls ask for beside the banks.

    Raises:
        PlanError: names the bank, the operation that copies it, and the call it is copied for.
    """
    shapes = {name: f"u8[{size}]" for name, size in banks.items()}
    lines = [match for line in text.splitlines() if (match := _LINE.match(line))]
    for match in lines:
        name, shape, operation, _ = match.groups()
        if operation in _CARRIERS:
            continue
        copied = [bank for bank, wanted in shapes.items() if wanted in shape]
        if copied:
            user = _user_of(name, lines)
            raise PlanError(
                f"{title}: XLA makes a copy of bank {' or '.join(copied)} ({operation} {name}) "
                f"for {user}, expected every bank to stay in place"
            )
    calls = sum(match[3] == "custom-call" for match in lines)
    limit = TEMP_LIMIT + TEMP_OF_CALL * calls + workspace
    if temp_bytes > limit:
        raise PlanError(
            f"{title}: XLA sets aside {temp_bytes:,} bytes beside the banks, "
            f"expected at most {limit:,}"
        )


def _user_of(name: str, lines: list[re.Match[str]]) -> str:
    for match in lines:
        if re.search(rf"%?{re.escape(name)}[,)\s]", match[4]):
            target = _TARGET.search(match[4])
            return f"the call {target[1]} ({match[1]})" if target else f"{match[3]} {match[1]}"
    return "the result"
