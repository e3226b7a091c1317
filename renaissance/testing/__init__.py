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
    from renaissance.testing.agreement import (
        assert_functions_agree,
        assert_lowerings_agree,
        assert_programs_agree,
        random_batch,
    )
    from renaissance.testing.gradients import check_gradients

_LAZY = {
    "assert_functions_agree": "renaissance.testing.agreement",
    "assert_lowerings_agree": "renaissance.testing.agreement",
    "assert_programs_agree": "renaissance.testing.agreement",
    "check_gradients": "renaissance.testing.gradients",
    "random_batch": "renaissance.testing.agreement",
}

__all__ = [
    "Golden",
    "assert_functions_agree",
    "assert_lowerings_agree",
    "assert_programs_agree",
    "assert_within",
    "check_gradients",
    "golden_normal",
    "random_batch",
    "relative_error",
    "worst_tensor",
    "write_golden",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'renaissance.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
