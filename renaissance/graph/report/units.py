"""Bytes for eyes."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human(nbytes: int) -> str:
    """A size in the largest unit that leaves a number of at least one: ``"1.5 MiB"``."""
    size, unit = float(nbytes), 0
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
