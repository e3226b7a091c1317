"""The command line: parse, call, print. Only the chosen command's module is imported."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from renaissance.core.errors import RenaissanceError

# command -> (module, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("renaissance.cli.train", "train a network and report its best top-1"),
    "show": ("renaissance.cli.show", "print a network's plan, memory map and graphs"),
    "schedule": ("renaissance.cli.schedule", "print or plot a learning-rate schedule"),
    "compare": ("renaissance.cli.compare", "measure a training step against its peers"),
    "profile": ("renaissance.cli.profile", "say where the time of a train step goes"),
    "data": ("renaissance.cli.data", "inspect, verify and convert data sets"),
    "kernels": ("renaissance.cli.kernels", "compile the device kernels, without a device"),
    "doctor": ("renaissance.cli.doctor", "say what works on this machine and what is missing"),
}

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments after the program's name; those of the process unless given.

    Returns:
        The exit code: 0, 2 after an error (one sentence on standard error, or with ``--debug`` a
        traceback), 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has gone; nothing more can be said, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as exit_request:
        return _exit_code(exit_request)
    except (RenaissanceError, ValueError, TypeError, OSError, ImportError) as error:
        if debug or _is_our_mistake(error):
            raise
        print(f"renaissance: error: {_sentence(error)}", file=sys.stderr)
        return EXIT_ERROR


def _dispatch(arguments: list[str]) -> int:
    command = next((a for a in arguments if not a.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="renaissance",
        description="Train image networks by one planned, donated executable per step.",
        epilog="--debug with any command: a traceback instead of one sentence when it fails.",
    )
    parser.add_argument("--version", action="version", version=f"renaissance {_version()}")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command", title="commands")
    chosen: ModuleType | None = None
    for name, (module, purpose) in COMMANDS.items():
        if name == command:
            chosen = _load(name, module)
            chosen.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=purpose)
    options = parser.parse_args(arguments)
    if chosen is None:
        parser.print_help()
        return 0 if command is None else EXIT_ERROR
    return int(chosen.run(options) or 0)


def _load(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ImportError(f"command {name!r} is not part of this installation") from error
        raise ImportError(
            f"command {name!r} needs {error.name!r}, which is not installed"
        ) from error


def _is_our_mistake(error: Exception) -> bool:
    """A module of the package that lacks a name is no message for a user."""
    return isinstance(error, ImportError) and str(error.name or "").startswith("renaissance")


def _version() -> str:
    from renaissance import __version__

    return __version__


def _exit_code(exit_request: SystemExit) -> int:
    code = exit_request.code
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _sentence(error: BaseException) -> str:
    """The error's message on one line, with the file's name where it is about one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
