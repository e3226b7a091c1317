"""Golden numbers from an independent implementation, see
``tests/golden/generate_optimizers.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """The whole golden file."""
    path = Path(__file__).parent.parent / "golden" / "optimizers.json"
    return json.loads(path.read_text())
