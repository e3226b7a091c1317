"""Runs tests until a time is up, one case of every test before the second of any.

    python benchmarks/some_tests.py SECONDS [pytest's arguments]

For tools that slow a program down a hundred times, such as compute-sanitizer: it ends by itself, so
that the tool still gives its report.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import pytest


class InTurns:
    """A plugin that reorders tests and stops when the time is up."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """First cases first; in between the order stays."""
        seen: Counter[str] = Counter()
        turn: dict[Any, int] = {}
        for item in items:
            name = item.nodeid.split("[")[0]
            turn[item] = seen[name]
            seen[name] += 1
        items.sort(key=lambda item: turn[item])

    def pytest_runtest_teardown(self, item: Any) -> None:
        """Stop after this test if the time is up."""
        if time.monotonic() > self.end:
            item.session.shouldstop = "the time is up"


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[InTurns(float(sys.argv[1]))]))
