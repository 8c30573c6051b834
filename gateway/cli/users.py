"""``headgate users``: the users that may log in. Passwords are stored as SCRAM verifiers."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient, Refused
from gateway.cli.find_node import NodeOptions, find_client
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_rows, say
from gateway.cli.synonyms import command_group
from gateway.cli.user_keys import keys_app

users_app = command_group("Users of a running node.")
users_app.add_typer(keys_app, name="keys")

_NONE: Final = "no users; add one: headgate users add NAME"

_YES_NO: Final = {True: "yes", False: "no"}

Name = Annotated[str, typer.Argument(help="The user's name.", autocompletion=complete.users)]


@users_app.command()
def add(  # noqa: PLR0913 - one argument per option
    name: Name,
    *,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    administrator: Annotated[
        bool | None,
        typer.Option(
            "--administrator/--no-administrator",
            help="Allow the user everything, regardless of rules, as the first user is.",
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Write to the metadata store of a stopped node.")
    ] = False,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Add a user, or change a password. After the first user, login is required.

    The first user is an administrator, unless auth.super_users names some.
    """
    given = NodeOptions(url, token_file, config, assignments)
    client = None if offline else find_client(given)
    body = {"password": _password(from_stdin=password_stdin), "administrator": administrator}
    if client is None:
        added = _add_offline(config, assignments, name, body)
    else:
        added = client.send("PUT", "users", name, body=body)
    say(f"user {name} may log in")
    if added["administrator"]:
        say(f"{name} is an administrator: may do everything, whatever rules say")
    if added["login_is_new"]:
        say("from now on everybody must log in (auth.required)")
    elif not added["authentication_required"]:
        say("login is not required: the config has auth.required = false")


@users_app.command()
def verifier(
    *,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Print a SCRAM verifier, for [[users]] of a config file in place of a password."""
    from gateway.auth.users import new_credentials
    from gateway.auth.verifiers import format_verifier
    from gateway.cli.settings import settings_of

    auth = settings_of(config, assignments).auth
    for credential in new_credentials(_password(from_stdin=password_stdin), auth):
        say(format_verifier(credential))


@users_app.command("ls")
@of_node
def list_users(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List users."""
    found = client.get("users")["users"]
    if not as_json:
        found = [{**user, "administrator": _YES_NO[user["administrator"]]} for user in found]
    print_rows(found, ["name", "administrator", "origin"], as_json=as_json, if_empty=_NONE)


@users_app.command("rm")
@of_node
def remove(client: AdminClient, name: Name, *, yes: options.Yes = False) -> None:
    """Remove a user and its access keys, and close its connections."""
    confirm(lambda: _question(client, name), yes=yes)
    client.send("DELETE", "users", name)
    say(f"removed {name}")


def _question(client: AdminClient, name: str) -> str:
    """Return the question before a removal. Error: ``Refused``."""
    if name not in {user["name"] for user in client.get("users")["users"]}:
        raise Refused(f"there is no user {name}")
    keys = len(client.get("users", name, "keys")["keys"])
    return f"Remove user {name} and {keys} access key(s)?"


def _add_offline(
    config: Path | None, assignments: list[str] | None, name: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    import asyncio

    from gateway.cli.settings import settings_of
    from gateway.cli.stopped_node_users import add_user

    return asyncio.run(add_user(settings_of(config, assignments), name, body))


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
