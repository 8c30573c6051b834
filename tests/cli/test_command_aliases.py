"""The usual other names of commands work in every group, and the help shows one of each."""

import pytest

from gateway.cli.app import every_command
from gateway.cli.synonyms import SYNONYMS
from tests.cli.conftest import Run

GROUPS = {
    name: command for name, command in every_command().items() if hasattr(command, "commands")
}
MEANT = [
    (group, own, other)
    for group, command in GROUPS.items()
    for own in command.commands
    for row in SYNONYMS
    if own in row
    for other in row
    if other not in command.commands
]


def test_there_are_groups_with_each_of_the_synonyms() -> None:
    assert {own for _, own, _ in MEANT} >= {"ls", "rm", "delete", "show", "describe", "add"}


@pytest.mark.parametrize(("group", "own", "other"), MEANT)
def test_a_synonym_is_the_same_command(run: Run, group: str, own: str, other: str) -> None:
    told, expected = run(group, other, "--help"), run(group, own, "--help")
    assert told.status == 0, told.err
    shown = told.out.replace(f"{group} {other} ", f"{group} {own} ")
    assert shown.split() == expected.out.split()


@pytest.mark.parametrize("other", ["ls", "rm", "delete"])
def test_a_group_within_a_group_has_them_too(run: Run, other: str) -> None:
    assert run("users", "keys", other, "--help").status == 0


def test_the_help_shows_one_name_of_each(run: Run) -> None:
    shown = run("topics", "--help").out
    assert " ls " in shown
    assert " list " not in shown
    assert " describe " in shown
    assert " show " not in shown


def test_what_means_nothing_stays_a_wrong_command(run: Run) -> None:
    assert run("clients", "delete").status == 2
    assert run("topics", "lst").status == 2
