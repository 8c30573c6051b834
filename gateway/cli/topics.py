"""``headgate topics``: list, create, describe, alter, widen and delete topics."""

from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, settings_of
from gateway.cli.output import print_json, print_rows, say
from gateway.model import DEFAULT_NAMESPACE

topics_app = typer.Typer(no_args_is_help=True, help="Topics of a running node.")

Name = Annotated[str, typer.Argument(help="The topic's name.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-config",
        "-c",
        metavar="NAME=VALUE",
        help="A topic config by its Kafka name, retention.ms=86400000; may be repeated. "
        "An empty value means the default.",
    ),
]


@topics_app.command("ls")
def list_topics(
    *,
    internal: Annotated[bool, typer.Option(help="Show internal topics too.")] = False,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """List topics."""
    query = {"namespace": namespace, "internal": str(internal).lower()}
    client = AdminClient.of(settings_of(config, assignments))
    found = client.get("topics", query=query)["topics"]
    print_rows(found, ["name", "partitions", "configs_set"], as_json=as_json)


@topics_app.command()
def create(
    name: Name,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many partitions.")
    ] = None,
    changes: Changes = None,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Create a topic."""
    body = {"name": name, "partitions": partitions, "configs": _without_none(changes)}
    client = AdminClient.of(settings_of(config, assignments))
    made = client.send("POST", "topics", body=body, query={"namespace": namespace})
    say(f"created {name} with {made['partitions']} partition(s)")


@topics_app.command()
def describe(
    name: Name,
    *,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a topic's partitions and configs, and who holds messages back from retention."""
    client = AdminClient.of(settings_of(config, assignments))
    topic = client.get("topics", name, query={"namespace": namespace})
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
def alter(
    name: Name,
    changes: Changes = None,
    *,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Change configs of a topic; an empty value (-c retention.ms=) puts the default back."""
    body = {"changes": _parse(changes)}
    if not body["changes"]:
        msg = "name at least one change, -c retention.ms=86400000"
        raise typer.BadParameter(msg)
    client = AdminClient.of(settings_of(config, assignments))
    client.send("PATCH", "topics", name, "configs", body=body, query={"namespace": namespace})
    say(f"altered {name}")


@topics_app.command("add-partitions")
def add_partitions(
    name: Name,
    total: Annotated[int, typer.Argument(min=1, help="How many there are to be in all.")],
    *,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Give a topic more partitions; keys will go to other partitions than before."""
    client = AdminClient.of(settings_of(config, assignments))
    query = {"namespace": namespace}
    client.send("POST", "topics", name, "partitions", body={"total": total}, query=query)
    say(f"{name} has {total} partition(s)")


@topics_app.command()
def delete(
    name: Name,
    *,
    yes: options.Yes = False,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Delete a topic and all its messages."""
    client = AdminClient.of(settings_of(config, assignments))
    if not yes:
        typer.confirm(f"Delete topic {name} and all its messages?", abort=True)
    client.send("DELETE", "topics", name, query={"namespace": namespace})
    say(f"deleted {name}")


def _parse(changes: list[str] | None) -> dict[str, str | None]:
    """Return configs by name; None where the default is to come back."""
    found: dict[str, str | None] = {}
    for change in changes or ():
        name, equals, value = change.partition("=")
        if not equals or not name:
            msg = f"{change!r} is not NAME=VALUE"
            raise typer.BadParameter(msg)
        found[name] = value or None
    return found


def _without_none(changes: list[str] | None) -> dict[str, str]:
    return {name: value for name, value in _parse(changes).items() if value is not None}
