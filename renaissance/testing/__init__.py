"""What tests of one's own models and layers need: comparisons, gradient checks, golden files.

Parts that need jax are loaded when first used, so that golden files can be written by programs that
have none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from renaissance.testing.compare import assert_within, relative_error, worst_tensor
from renaissance.testing.golden import Golden, golden_normal, write_golden

if TYPE_CHECKING:
    from renaissance.testing.gradients import check_gradients

_LAZY = {"check_gradients": "renaissance.testing.gradients"}

__all__ = [
    "Golden",
    "assert_within",
    "check_gradients",
    "golden_normal",
    "relative_error",
    "worst_tensor",
    "write_golden",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'renaissance.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
