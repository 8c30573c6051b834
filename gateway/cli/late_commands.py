"""Commands whose modules are imported when they are called.

All commands together import a second of processor time; one of them a tenth of it. Help and
completion show the names and first lines that are listed here, and import nothing.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from gateway.cli.light_values import lighten


class LateCommand(NamedTuple):
    """Module of a command, its attribute (a Typer or a function), and its help's first line."""

    module: str
    attribute: str
    help: str


class LateGroup(TyperGroup):
    """Group whose commands are those of ``late``, besides those that it was given."""

    late: ClassVar[Mapping[str, LateCommand]] = {}

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - typer's own arguments
        super().__init__(**given)
        for name, one in self.late.items():
            self.commands[name] = TyperCommand(name=name, help=one.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        """Parse the options before a command."""
        lighten(self)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer hides them
        """Return the command that arguments name, imported."""
        if args:
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Put the command in place of its name and help, if there is such a command."""
        one = self.late.get(name)
        if one is not None:
            self.commands[name] = loaded(name, one)


def loaded(name: str, one: LateCommand) -> Any:  # noqa: ANN401 - typer hides the class
    """Return the command itself."""
    found = getattr(import_module(one.module), one.attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name = name
    lighten(command)
    return command
