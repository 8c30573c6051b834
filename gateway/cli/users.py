"""``headgate users``: who may log in. Only what SCRAM needs of a password is kept."""

import asyncio
import sys
from typing import Annotated, Final

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, Refused, settings_of
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_rows, say
from gateway.cli.stopped_node import stopped_metadata
from gateway.cli.synonyms import command_group
from gateway.config.settings import Settings

users_app = command_group("Users of a running node.")

_NONE: Final = "no users; add one: headgate users add NAME"

Name = Annotated[str, typer.Argument(help="The user's name.")]


@users_app.command()
def add(
    name: Name,
    *,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Write to the metadata store of a stopped node.")
    ] = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Add a user, or give one a new password. From the first user on, everybody must log in."""
    settings = settings_of(config, assignments)
    if offline:
        asyncio.run(_put_offline(settings, name, _password(from_stdin=password_stdin)))
    else:
        client = AdminClient.of(settings)
        body = {"password": _password(from_stdin=password_stdin)}
        client.send("PUT", "users", name, body=body)
    say(f"user {name} may log in")


@users_app.command("ls")
@of_node
def list_users(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List users."""
    found = client.get("users")["users"]
    print_rows(found, ["name"], as_json=as_json, if_empty=_NONE)


@users_app.command("rm")
@of_node
def remove(client: AdminClient, name: Name, *, yes: options.Yes = False) -> None:
    """Remove a user and its access keys. Without any user left, nobody needs to log in."""
    confirm(lambda: _question(client, name), yes=yes)
    client.send("DELETE", "users", name)
    say(f"removed {name}")


def _question(client: AdminClient, name: str) -> str:
    """Ask with what would be lost. Error: ``Refused``."""
    if name not in {user["name"] for user in client.get("users")["users"]}:
        raise Refused(f"there is no user {name}")
    keys = len(client.get("users", name, "keys")["keys"])
    return f"Remove user {name} and {keys} access key(s)?"


async def _put_offline(settings: Settings, name: str, password: str) -> None:
    """Add the first user of a node that will not listen beyond loopback without one."""
    from gateway.auth.users import StoredUsers, iterations_of

    async with stopped_metadata(settings) as metadata:
        users = StoredUsers(metadata)
        users.iterations = iterations_of(settings.auth)
        try:
            await users.load()
            await users.put_user(name, password)
        finally:
            await users.close()


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
