"""``headgate`` without a command: its version, and completion in shells."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gateway.cli.app import every_command
from gateway.cli.commands import COMMANDS
from tests.cli.conftest import Run
from tests.support.gateway import ROOT

PROGRAM = Path(sys.executable).with_name("headgate")


def complete(words: str, count: int) -> list[str]:
    """Return what a shell is offered for a command line: as bash asks for it."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway"],
        cwd=ROOT,
        env={
            **os.environ,
            "_HEADGATE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_version_is_that_of_the_package(run: Run) -> None:
    done = run("--version")
    assert done.status == 0
    assert done.out.split()[:2] == ["headgate", version("headgate")]


def test_a_shell_completes_commands_and_options() -> None:
    assert complete("headgate top", 1) == ["topics"]
    assert set(complete("headgate topics ", 2)) >= {"ls", "create", "delete", "find"}
    assert "--partitions" in complete("headgate topics create --p", 3)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_printed(shell: str) -> None:
    """Asked as the shell's own start-up files may ask; which shell runs is not guessed."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway"],
        cwd=ROOT,
        env={**os.environ, "_HEADGATE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"complete_{shell}" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_help_of_each(name: str) -> None:
    """The list imports no command; what it says is what the command says."""
    shown = " ".join((every_command()[name].help or "").partition("\n\n")[0].split())
    assert COMMANDS[name].help == shown
