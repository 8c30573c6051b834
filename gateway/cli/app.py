"""All commands; ``serve`` is here for ``--help`` only.

Exit status 0 when done, 1 when refused or out of reach, 2 when the command or the settings are
wrong.
"""

import platform
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from gateway.cli import serve
from gateway.cli.backup import backup, restore
from gateway.cli.bench import bench
from gateway.cli.check_config import check_config
from gateway.cli.clients import clients_app
from gateway.cli.dlq import dlq_app
from gateway.cli.exchanges import bindings_app, exchanges_app
from gateway.cli.find import find
from gateway.cli.groups import groups_app
from gateway.cli.log import log_app
from gateway.cli.output import fail, say
from gateway.cli.pipeline import pipeline_app
from gateway.cli.queues import queues_app
from gateway.cli.recover import recover_metadata
from gateway.cli.reshard import reshard
from gateway.cli.rules import rules_app
from gateway.cli.topics import topics_app
from gateway.cli.user_keys import keys_app
from gateway.cli.users import users_app
from gateway.config.base import InvalidSettings
from gateway.errors import GatewayError
from gateway.installation import installed_version

STATUS_FAILED: Final = 1
STATUS_USAGE: Final = 2

app = typer.Typer(
    name="headgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="One endpoint for existing messaging clients, over one durable log.",
)


def _print_version(*, value: bool) -> None:
    if value:
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
    raise typer.Exit(serve.main(arguments or ()))


app.command("check-config")(check_config)
topics_app.command("find")(find)
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
app.add_typer(queues_app, name="queues")
app.add_typer(exchanges_app, name="exchanges")
app.add_typer(bindings_app, name="bindings")
app.add_typer(dlq_app, name="dlq")
app.add_typer(clients_app, name="clients")
users_app.add_typer(keys_app, name="keys")
app.add_typer(users_app, name="users")
app.add_typer(rules_app, name="rules")
app.add_typer(log_app, name="log")
app.add_typer(pipeline_app, name="pipeline")
app.command("backup")(backup)
app.command("restore")(restore)
app.command("recover-metadata")(recover_metadata)
app.command("reshard")(reshard)
app.command("bench")(bench)


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
