"""``headgate topics``: list, create, describe, alter, widen and delete topics."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient
from gateway.cli.find import find
from gateway.cli.node_commands import Change, confirm, in_namespace, parse_change
from gateway.cli.output import format_size, print_json, print_rows, say
from gateway.cli.synonyms import command_group

topics_app = command_group("Topics of a running node.")

_NONE: Final = "no topics; make one: headgate topics create NAME"

Name = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete.topics)]
Changes = Annotated[
    list[Change] | None,
    typer.Option(
        "--topic-config",
        "-c",
        parser=parse_change,
        metavar="NAME=VALUE",
        help="A topic config by its Kafka name, retention.ms=86400000; may be repeated. "
        "An empty value means the default.",
    ),
]


@topics_app.command("ls")
@in_namespace
def list_topics(
    client: AdminClient,
    *,
    internal: Annotated[bool, typer.Option(help="Show internal topics too.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List topics."""
    found = client.get("topics", query={"internal": str(internal).lower()})["topics"]
    print_rows(found, ["name", "partitions", "configs_set"], as_json=as_json, if_empty=_NONE)


@topics_app.command()
@in_namespace
def create(
    client: AdminClient,
    name: Name,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions.")
    ] = None,
    changes: Changes = None,
) -> None:
    """Create a topic."""
    configs = {one.name: one.value for one in changes or () if one.value is not None}
    body = {"name": name, "partitions": partitions, "configs": configs}
    made = client.send("POST", "topics", body=body)
    say(f"created {name} with {made['partitions']} partition(s)")


@topics_app.command()
@in_namespace
def describe(client: AdminClient, name: Name, *, as_json: options.AsJson = False) -> None:
    """Show a topic's partitions, configs and retention holds."""
    topic = client.get("topics", name)
    if as_json:
        print_json(topic)
        return
    say(f"{topic['name']}  uuid {topic['uuid']}  namespace {topic['namespace']}\n")
    columns = ["number", "log_start_offset", "high_watermark", "log_end_offset", "size_bytes"]
    print_rows(topic["partitions"], columns, as_json=False)
    say("")
    held = [
        {"partition": partition["number"], **holder}
        for partition in topic["partitions"]
        for holder in partition["holders"]
    ]
    if held:
        say("held by")
        print_rows(held, ["partition", "name", "kind", "offset", "behind"], as_json=False)
        say("")
    print_rows(topic["configs"], ["name", "value", "is_default"], as_json=False)


@topics_app.command()
@in_namespace
def alter(client: AdminClient, name: Name, changes: Changes = None) -> None:
    """Change configs of a topic; an empty value (-c retention.ms=) restores the default."""
    if not changes:
        msg = "name at least one change, -c retention.ms=86400000"
        raise typer.BadParameter(msg)
    client.send("PATCH", "topics", name, "configs", body={"changes": dict(changes)})
    say(f"altered {name}")


@topics_app.command("add-partitions")
@in_namespace
def add_partitions(
    client: AdminClient,
    name: Name,
    total: Annotated[int, typer.Argument(min=1, help="New total number of partitions.")],
) -> None:
    """Add partitions to a topic; keys then map to other partitions."""
    client.send("POST", "topics", name, "partitions", body={"total": total})
    say(f"{name} has {total} partition(s)")


@topics_app.command()
@in_namespace
def delete(client: AdminClient, name: Name, *, yes: options.Yes = False) -> None:
    """Delete a topic and all its messages."""
    confirm(lambda: _question(client.get("topics", name)), yes=yes)
    client.send("DELETE", "topics", name)
    say(f"deleted {name}")


def _question(topic: Mapping[str, Any]) -> str:
    """Return the question before a removal."""
    partitions = topic["partitions"]
    size = format_size(sum(one["size_bytes"] or 0 for one in partitions))
    records = sum(one["log_end_offset"] - one["log_start_offset"] for one in partitions)
    return (
        f"Delete topic {topic['name']} and all its messages: {len(partitions)} partition(s), "
        f"{records:,} record(s), {size}?"
    )


topics_app.command("find")(find)
