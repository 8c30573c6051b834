"""Command groups with synonyms of commands: ``list`` for ``ls``."""

from collections.abc import Collection
from typing import Any, Final

import typer
from typer.core import TyperGroup

SYNONYMS: Final = (
    ("ls", "list"),
    ("rm", "remove", "delete"),
    ("show", "describe"),
    ("add", "create"),
    ("set", "alter"),
)
"""The names of a row mean the same in every group, whichever of them a group's help shows."""


def command_group(text: str) -> typer.Typer:
    """Return an empty group of commands whose help begins with ``text``."""
    return typer.Typer(cls=SynonymGroup, no_args_is_help=True, add_completion=False, help=text)


class SynonymGroup(TyperGroup):
    """Command group that finds a command by its name, then by a synonym."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer hides them
        """Return the command, or None."""
        return super().get_command(ctx, own_name(cmd_name, self.commands))


def own_name(given: str, names: Collection[str]) -> str:
    """Return the one of ``names`` that ``given`` is or means, else ``given``.

    >>> own_name("list", ["ls", "rm"]), own_name("list", ["list", "ls"]), own_name("x", ["ls"])
    ('ls', 'list', 'x')
    """
    row = next((row for row in SYNONYMS if given in row), ())
    return next((name for name in (given, *row) if name in names), given)
