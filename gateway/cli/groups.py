"""``headgate groups``: consumer groups and where they stand."""

from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, settings_of
from gateway.cli.output import print_json, print_rows, say

groups_app = typer.Typer(no_args_is_help=True, help="Consumer groups of a running node.")

Group = Annotated[str, typer.Argument(help="The group's id.")]


@groups_app.command("ls")
def list_groups(
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """List groups."""
    found = AdminClient.of(settings_of(config, assignments)).get("groups")["groups"]
    print_rows(found, ["group_id", "state", "protocol_type", "members"], as_json=as_json)


@groups_app.command()
def describe(
    group: Group,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a group's state and members."""
    found = AdminClient.of(settings_of(config, assignments)).get("groups", group)
    if as_json:
        print_json(found)
        return
    say(f"{found['group_id']}  {found['state']}  protocol {found['protocol'] or '-'}\n")
    columns = ["member_id", "instance_id", "client_id", "client_host"]
    print_rows(found["members"], columns, as_json=False)


@groups_app.command()
def offsets(
    group: Group,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a group's committed offsets and how far it is behind."""
    found = AdminClient.of(settings_of(config, assignments)).get("groups", group, "offsets")
    columns = ["topic", "partition", "offset", "end", "lag", "metadata"]
    print_rows(found["offsets"], columns, as_json=as_json)


@groups_app.command()
def reset(
    group: Group,
    *,
    topic: Annotated[str, typer.Option(help="The topic.")],
    to: Annotated[str, typer.Option(help="`earliest`, `latest` or an offset.")],
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition instead of all.")
    ] = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Move the committed offsets of a group that has no members."""
    client = AdminClient.of(settings_of(config, assignments))
    body = {"topic": topic, "partition": partition, "to": to}
    moved = client.send("POST", "groups", group, "offsets", body=body)["offsets"]
    print_rows(moved, ["topic", "partition", "offset"], as_json=False)


@groups_app.command()
def delete(
    group: Group,
    *,
    yes: options.Yes = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Delete a group without members, and its committed offsets."""
    client = AdminClient.of(settings_of(config, assignments))
    if not yes:
        typer.confirm(f"Delete group {group} and its offsets?", abort=True)
    client.send("DELETE", "groups", group)
    say(f"deleted {group}")
