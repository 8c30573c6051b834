"""``headgate groups``: consumer groups and their offsets."""

from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.synonyms import command_group

groups_app = command_group("Consumer groups of a running node.")

Group = Annotated[str, typer.Argument(help="The group's id.")]


@groups_app.command("ls")
@of_node
def list_groups(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List groups."""
    found = client.get("groups")["groups"]
    print_rows(
        found,
        ["group_id", "state", "protocol_type", "members"],
        as_json=as_json,
        if_empty="no groups; a group comes to be when a consumer joins it or commits",
    )


@groups_app.command()
@of_node
def describe(client: AdminClient, group: Group, *, as_json: options.AsJson = False) -> None:
    """Show a group's state and members."""
    found = client.get("groups", group)
    if as_json:
        print_json(found)
        return
    say(f"{found['group_id']}  {found['state']}  protocol {found['protocol'] or '-'}\n")
    columns = ["member_id", "instance_id", "client_id", "client_host"]
    print_rows(found["members"], columns, as_json=False, if_empty="no members")


@groups_app.command()
@of_node
def offsets(client: AdminClient, group: Group, *, as_json: options.AsJson = False) -> None:
    """Show a group's committed offsets and lag."""
    found = client.get("groups", group, "offsets")
    columns = ["topic", "partition", "offset", "end", "lag", "metadata"]
    print_rows(
        found["offsets"], columns, as_json=as_json, if_empty=f"{group} has committed no offsets"
    )


@groups_app.command()
@of_node
def reset(
    client: AdminClient,
    group: Group,
    *,
    topic: Annotated[str, typer.Option(help="The topic.")],
    to: Annotated[str, typer.Option(help="`earliest`, `latest` or an offset.")],
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition instead of all.")
    ] = None,
) -> None:
    """Move the committed offsets of a group that has no members."""
    body = {"topic": topic, "partition": partition, "to": to}
    moved = client.send("POST", "groups", group, "offsets", body=body)["offsets"]
    print_rows(moved, ["topic", "partition", "offset"], as_json=False)


@groups_app.command()
@of_node
def delete(client: AdminClient, group: Group, *, yes: options.Yes = False) -> None:
    """Delete a group without members, and its committed offsets."""
    confirm(lambda: _question(client, group), yes=yes)
    client.send("DELETE", "groups", group)
    say(f"deleted {group}")


def _question(client: AdminClient, group: str) -> str:
    """Return the question before a removal. Error: ``Refused`` where there is no such group."""
    client.get("groups", group)
    committed = client.get("groups", group, "offsets")["offsets"]
    return f"Delete group {group} and its {len(committed)} committed offset(s)?"
