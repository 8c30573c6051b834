"""``headgate groups``: consumer and share groups, and their offsets."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import note, print_json, print_rows, say
from gateway.cli.record_lines import parse_time
from gateway.cli.synonyms import command_group

groups_app = command_group("Consumer and share groups of a running node.")

Group = Annotated[str, typer.Argument(help="The group's id.", autocompletion=complete.groups)]


@groups_app.command("ls")
@of_node
def list_groups(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List groups."""
    found = client.get("groups")["groups"]
    print_rows(
        found,
        ["group_id", "type", "state", "protocol_type", "members"],
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
    """Show a group's committed offsets and lag; of a share group, what is in flight, too."""
    found = client.get("groups", group, "offsets")["offsets"]
    is_shared = any("in_flight" in one for one in found)
    last = "in_flight" if is_shared else "metadata"
    columns = ["topic", "partition", "offset", "end", "lag", last]
    print_rows(found, columns, as_json=as_json, if_empty=f"{group} has committed no offsets")


@groups_app.command()
@of_node
def reset(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    group: Group,
    *,
    topic: Annotated[str, typer.Option(help="The topic.", autocompletion=complete.topics)],
    to: Annotated[str | None, typer.Option(help="`earliest`, `latest` or an offset.")] = None,
    to_time: Annotated[
        int | None,
        typer.Option(
            parser=parse_time,
            metavar="TIME",
            help="The first record at or after a time: 2026-11-20T10:00.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(help="So many records further, or back: --shift-by=-100."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition instead of all.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Move the committed offsets of a group that has no members."""
    given = {"to": to, "to_time_unix_ms": to_time, "shift_by": shift_by}
    if sum(one is not None for one in given.values()) != 1:
        raise typer.BadParameter("give one of --to, --to-time and --shift-by")
    body = {"topic": topic, "partition": partition, **given, "dry_run": dry_run}
    moved = client.send("POST", "groups", group, "offsets", body=body)["offsets"]
    columns = ["topic", "partition", "offset"]
    if dry_run:
        columns = ["topic", "partition", "before", "offset", "end", "skips"]
        moved = [{**one, "skips": _skipped(one)} for one in moved]
    print_rows(moved, columns, as_json=as_json)
    if dry_run:
        note("nothing has changed: leave out --dry-run to move them")


@groups_app.command("forget-topic")
@of_node
def forget_topic(
    client: AdminClient,
    group: Group,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete.topics)],
    *,
    yes: options.Yes = False,
) -> None:
    """Remove a group's committed offsets in a topic that it no longer reads."""
    confirm(lambda: f"Remove the offsets of group {group} in topic {topic}?", yes=yes)
    client.send("DELETE", "groups", group, "topics", topic)
    say(f"{group} has no offsets in {topic}")


def _skipped(move: Mapping[str, Any]) -> str:
    """Return the records that a move skips, or delivers again."""
    if move["before"] is None:
        return "-"
    count = move["offset"] - move["before"]
    return f"{-count:,} again" if count < 0 else f"{count:,}"


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
