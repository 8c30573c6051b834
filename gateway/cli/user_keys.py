"""``headgate users keys``: access keys, for protocols that sign requests, as SQS does."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, Refused
from gateway.cli.find_node import NodeOptions, find_client
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.synonyms import command_group

keys_app = command_group("Access keys, which requests are signed with.")

User = Annotated[str, typer.Argument(help="User of requests signed with the key.")]


@keys_app.command()
def add(  # noqa: PLR0913 - one argument per option
    user: User,
    *,
    account: Annotated[
        str, typer.Option(help="12 digits; without it, the adapter's default account.")
    ] = "",
    key_id: Annotated[
        str | None, typer.Option("--key-id", help="An id of your own instead of a new one.")
    ] = None,
    secret_stdin: Annotated[
        bool, typer.Option("--secret-stdin", help="Read a secret of your own from stdin.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Write to the metadata store of a stopped node.")
    ] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Create an access key and show its secret once."""
    secret = sys.stdin.readline().rstrip("\r\n") if secret_stdin else None
    wanted = {"account": account, "key_id": key_id, "secret": secret}
    if offline:
        made = _add_offline(config, assignments, user, wanted)
    else:
        client = find_client(NodeOptions(url, token_file, config, assignments))
        made = client.send("POST", "users", user, "keys", body=wanted)
    if as_json:
        print_json(made)
        return
    say(f"access key of {made['user']}; the secret is not shown again\n")
    say(f"  AWS_ACCESS_KEY_ID={made['key_id']}")
    say(f"  AWS_SECRET_ACCESS_KEY={made['secret']}")


@keys_app.command("list")
@of_node
def list_keys(
    client: AdminClient,
    user: Annotated[str | None, typer.Argument(help="Only this user's.")] = None,
    *,
    as_json: options.AsJson = False,
) -> None:
    """List access keys, without their secrets."""
    path = ("access-keys",) if user is None else ("users", user, "keys")
    found = client.get(*path)["keys"]
    if not as_json:
        found = [{**key, "account": key["account"] or "the default"} for key in found]
    print_rows(
        found,
        ["user", "key_id", "account", "origin"],
        as_json=as_json,
        if_empty="no access keys; make one: headgate users keys add USER",
    )


@keys_app.command("remove")
@of_node
def remove(
    client: AdminClient,
    key_id: Annotated[str, typer.Argument(help="The key's id.")],
    *,
    yes: options.Yes = False,
) -> None:
    """Remove an access key: requests signed with it are refused from now on."""
    confirm(lambda: _question(client, key_id), yes=yes)
    client.send("DELETE", "access-keys", key_id)
    say(f"removed {key_id}")


def _question(client: AdminClient, key_id: str) -> str:
    """Return the question before a removal, with the key's user. Error: ``Refused``."""
    keys = client.get("access-keys")["keys"]
    user = next((key["user"] for key in keys if key["key_id"] == key_id), None)
    if user is None:
        raise Refused(f"there is no access key {key_id}")
    return f"Remove access key {key_id} of {user}?"


def _add_offline(
    config: Path | None, assignments: list[str] | None, user: str, wanted: Mapping[str, Any]
) -> dict[str, Any]:
    import asyncio

    from gateway.cli.settings import settings_of
    from gateway.cli.stopped_node_users import add_key

    return asyncio.run(add_key(settings_of(config, assignments), user, wanted))
