"""The functional door: ``compile`` a blueprint into a :class:`Program`."""

from renaissance.program.compilation import compile
from renaissance.program.config import ProgramConfig
from renaissance.program.program import Program

__all__ = ["Program", "ProgramConfig", "compile"]
