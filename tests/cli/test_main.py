"""The command line as a whole: help, one-sentence errors, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from renaissance import cli
from renaissance.cli import COMMANDS, main


def test_without_a_command_it_explains_itself(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_help_and_version_succeed(capsys):
    assert main(["--help"]) == 0
    assert main(["train", "--help"]) == 0
    assert "renaissance train digits --epochs 30" in capsys.readouterr().out
    assert main(["--version"]) == 0


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"renaissance {command}" in capsys.readouterr().out


def test_an_unknown_command_or_option_is_an_error(capsys):
    assert main(["fly"]) == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err
    assert main(["train", "digits", "--epohcs", "3"]) == 2
    assert "--epohcs" in capsys.readouterr().err


def failing(error: BaseException) -> types.ModuleType:
    module = types.ModuleType("failing")

    def run(options):
        raise error

    module.add_parser = lambda subparsers: subparsers.add_parser("doctor")  # type: ignore
    module.run = run  # type: ignore
    return module


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ValueError("batch is 0,\n  expected 1"), 2, "renaissance: error: batch is 0, expected 1"),
        (FileNotFoundError(2, "No such file", "/a/b"), 2, "error: /a/b: No such file"),
        (FileNotFoundError("/a: no such directory"), 2, "error: /a: no such directory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(7), 7, ""),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(monkeypatch, capsys, error, code, words):
    monkeypatch.setattr(cli, "_load", lambda name, module: failing(error))
    assert main(["doctor"]) == code
    text = capsys.readouterr().err
    assert words in text
    assert len(text.splitlines()) <= 1


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(cli, "_load", lambda name, module: failing(ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        main(["--debug", "doctor"])


def test_a_mistake_of_our_own_is_not_dressed_up(monkeypatch):
    broken = ImportError("cannot import name 'x'", name="renaissance.graph")
    for error in (broken, KeyError("x"), AssertionError()):
        monkeypatch.setattr(cli, "_load", lambda name, module, error=error: failing(error))
        with pytest.raises(type(error)):
            main(["doctor"])


def test_a_command_whose_module_is_missing_says_so(monkeypatch, capsys):
    monkeypatch.setitem(COMMANDS, "doctor", ("renaissance.cli.absent", "x"))
    assert main(["doctor"]) == 2
    assert "command 'doctor' is not part of this installation" in capsys.readouterr().err


def test_doctor_names_versions_devices_and_the_native_library(capsys):
    assert main(["doctor"]) == 0
    lines = {line.split("  ")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert {"renaissance", "python", "jax", "devices", "native library"} <= set(lines)
    assert "jaxlib" in lines["jax"]


def test_show_works_where_jax_cannot_be_imported():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from renaissance.cli import main\n"
        "sys.exit(main(['show', 'mlp', '--batch', '8']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "fc1" in done.stdout


def test_a_reader_that_leaves_is_no_error():
    code = "from renaissance.cli import main; import sys; sys.exit(main(['show', 'resnet50']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 1
