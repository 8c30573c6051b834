"""All commands; ``serve`` is here for ``--help`` only.

Exit status 0 when done, 1 when refused or out of reach, 2 when the command or the settings are
wrong.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
import typer.main

from gateway.cli.commands import COMMANDS
from gateway.cli.late_commands import LateGroup, loaded
from gateway.cli.output import fail, say
from gateway.errors import GatewayError, InvalidSettings

STATUS_FAILED: Final = 1
STATUS_USAGE: Final = 2


class _Commands(LateGroup):
    late = COMMANDS


app = typer.Typer(
    name="headgate",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="One endpoint for existing messaging clients, over one durable log.",
)


def _print_version(*, value: bool) -> None:
    if value:
        import platform

        from gateway.installation import installed_version

        say(f"headgate {installed_version()} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _headgate(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


@app.command(
    "serve",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def serve_command(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[--config] [--set]")] = None,
) -> None:
    """Run a node."""
    from gateway.cli import serve

    raise typer.Exit(serve.main(arguments or ()))


def every_command() -> Mapping[str, Any]:
    """Return all commands by name, imported: for those who compare them with the docs."""
    serve = typer.main.get_group(app).commands["serve"]
    return {"serve": serve, **{name: loaded(name, one) for name, one in COMMANDS.items()}}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status."""
    try:
        app(list(arguments), prog_name="headgate")
    except InvalidSettings as error:
        fail(str(error))
        return STATUS_USAGE
    except GatewayError as error:
        fail(str(error) or type(error).__name__)
        return STATUS_FAILED
    except BrokenPipeError:
        # The reader of our output has had enough, as `head` does.
        sys.stderr.close()
        return STATUS_FAILED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
