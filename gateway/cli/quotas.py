"""``headgate quotas``: client quotas, in force for all connections when a command ends."""

from contextlib import suppress
from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_rows, say
from gateway.cli.synonyms import command_group

quotas_app = command_group("Client quotas of a running node; <default> is for all others.")

Limits = Annotated[
    list[str],
    typer.Argument(
        metavar="QUOTA=NUMBER",
        help="producer_byte_rate, consumer_byte_rate, request_percentage, "
        "controller_mutation_rate; connection_creation_rate for --ip. Without a number the quota "
        "is removed.",
    ),
]
User = Annotated[str | None, typer.Option(help="For this user.")]
ClientId = Annotated[str | None, typer.Option("--client", help="For this client id.")]
Ip = Annotated[str | None, typer.Option(help="For this IP address.")]


@quotas_app.command("set")
@of_node
def set_quotas(
    client: AdminClient,
    limits: Limits,
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    body = _entity(user, client_id, ip) | {"limits": dict(map(_limit, limits))}
    client.send("PUT", "quotas", body=body)
    say("the quotas hold")


@quotas_app.command("list")
@of_node
def list_quotas(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List the stored quotas and those of the config file."""
    found = client.get("quotas")["quotas"]
    if not as_json:
        for one in found:
            limits = one["limits"].items()
            one["limits"] = " ".join(f"{name}={value:.10g}" for name, value in limits)
    columns = ["user", "client_id", "ip", "limits", "source"]
    print_rows(found, columns, as_json=as_json, if_empty="no quotas")


@quotas_app.command("delete")
@of_node
def delete_quotas(
    client: AdminClient,
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    yes: options.Yes = False,
) -> None:
    """Delete all quotas of exactly this user, client id, both, or address."""
    entity = _entity(user, client_id, ip)
    named = " ".join(f"{name} {part}" for name, part in entity.items())
    confirm(lambda: f"Delete the quotas of {named}?", yes=yes)
    client.send("DELETE", "quotas", query=entity)
    say("deleted")


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    parts = {"user": user, "client_id": client_id, "ip": ip}
    return {name: part for name, part in parts.items() if part is not None}


def _limit(text: str) -> tuple[str, float | None]:
    name, equals, number = text.partition("=")
    with suppress(ValueError):
        if equals:
            return name, float(number) if number else None
    msg = f"{text!r} is not QUOTA=NUMBER"
    raise typer.BadParameter(msg)
