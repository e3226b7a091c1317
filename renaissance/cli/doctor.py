"""``renaissance doctor``: what works on this machine, and what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

# optional package -> what it is for, and the extra that brings it
OPTIONAL = {
    "matplotlib": "curve pictures (extra: plot)",
    "simplejpeg": "JPEG files (extra: jpeg)",
    "cv2": "resizing and rotation (extra: jpeg)",
}


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    subparsers.add_parser(
        "doctor",
        help="say what works on this machine and what is missing",
        description="Say what works on this machine and what is missing.",
    )


def run(options: argparse.Namespace) -> int:
    """Print the findings; 0 if networks can be trained here."""
    for title, finding in findings():
        print(f"{title:16} {finding}")
    return 0


def findings() -> Iterator[tuple[str, str]]:
    """Pairs of a title and a sentence."""
    import jax

    from renaissance import __version__
    from renaissance.runtime import library

    yield "renaissance", __version__
    yield "python", f"{platform.python_version()} at {sys.executable}"
    yield "cpu cores", str(len(os.sched_getaffinity(0)))
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy"))
    yield "jax", ", ".join(versions)
    yield "devices", ", ".join(f"{d.device_kind} ({d.platform}:{d.id})" for d in jax.devices())
    yield "native library", library.status().message
    for package, purpose in OPTIONAL.items():
        there = importlib.util.find_spec(package) is not None
        yield package, f"{'installed' if there else 'not installed'}: {purpose}"
