"""``headgate queues``: queues, how many messages they have in which state, how they are set."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, settings_of
from gateway.cli.output import format_span, print_json, print_rows, say
from gateway.model import DEFAULT_NAMESPACE
from gateway.queue_model import DEFAULT_GROUP, QueueSettings

_MEANINGS: Final[Mapping[tuple[str, object], str]] = {
    ("retention_ms", -1): "no end",
    ("attempts_max", 0): "any number",
}

queues_app = typer.Typer(no_args_is_help=True, help="Queues of a running node.")

Name = Annotated[str, typer.Argument(help="The queue's name, which is its topic's.")]
Group = Annotated[str, typer.Option(help="The queue group, where a topic has several.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SETTING=VALUE",
        help="order (none, key: one of a key at a time, fair: quiet keys first), lease_ms, "
        "delay_ms, retention_ms, attempts_max, dead_letter_topic, in_flight_max.",
    ),
]


@queues_app.command("ls")
def list_queues(
    *,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """List queues with their messages by state and the age of the oldest."""
    client = AdminClient.of(settings_of(config, assignments))
    found = client.get("queues", query={"namespace": namespace})["queues"]
    if as_json:
        print_json(found)
        return
    rows = [
        {
            **queue,
            **queue["counts"],
            "oldest": format_span(queue["oldest_age_ms"]),
            "order": queue["settings"]["order"],
            "dead_letters": queue["settings"]["dead_letter_topic"] or None,
        }
        for queue in found
    ]
    columns = ["name", "ready", "in_flight", "delayed", "oldest", "order", "dead_letters"]
    if any(queue["group"] != DEFAULT_GROUP for queue in found):
        columns.insert(1, "group")
    print_rows(rows, columns, as_json=False)


@queues_app.command()
def create(  # noqa: PLR0913 - one argument per option
    name: Name,
    settings: Settings = None,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Of its topic, if new.")
    ] = None,
    group: Group = DEFAULT_GROUP,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Take what the topic holds already, too.")
    ] = False,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Create a queue with a topic of its own, or on a topic that is there."""
    body = {
        "name": name,
        "group": group,
        "partitions": partitions,
        "from_start": from_start,
        "settings": _parse(settings),
    }
    client = AdminClient.of(settings_of(config, assignments))
    made = client.send("POST", "queues", body=body, query={"namespace": namespace})
    where = "" if made["owns_topic"] else " of the topic that was there"
    say(f"created {name} on {made['partitions']} partition(s){where}")


@queues_app.command()
def show(
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a queue's messages by state, its settings, and who sends dead letters to it."""
    client = AdminClient.of(settings_of(config, assignments))
    queue = client.get("queues", name, query={"namespace": namespace, "group": group})
    if as_json:
        print_json(queue)
        return
    say(f"{queue['name']}  group {queue['group']}  namespace {queue['namespace']}\n")
    oldest = {"oldest": format_span(queue["oldest_age_ms"])}
    columns = ["ready", "in_flight", "delayed", "oldest", "partitions"]
    print_rows([{**queue, **queue["counts"], **oldest}], columns, as_json=False)
    say("")
    _print_pairs("setting", {key: _shown(key, value) for key, value in _settings(queue)})
    for title in ("attribute", "tag"):
        if queue[f"{title}s"]:
            say("")
            _print_pairs(title, queue[f"{title}s"])
    if queue["dead_letter_sources"]:
        say(f"\ndead letters come from {', '.join(queue['dead_letter_sources'])}")


@queues_app.command("set")
def alter(
    name: Name,
    settings: Settings = None,
    *,
    group: Group = DEFAULT_GROUP,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Change settings of a queue; an empty value (dead_letter_topic=) is the default."""
    changes = _parse(settings)
    if not changes:
        msg = "name at least one setting, lease_ms=60000"
        raise typer.BadParameter(msg)
    client = AdminClient.of(settings_of(config, assignments))
    query = {"namespace": namespace, "group": group}
    client.send("PATCH", "queues", name, body={"settings": changes}, query=query)
    say(f"set {' '.join(settings or ())} of {name}")


@queues_app.command()
def purge(
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    yes: options.Yes = False,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Remove all messages of a queue, also those in flight and delayed."""
    client = AdminClient.of(settings_of(config, assignments))
    if not yes:
        typer.confirm(f"Remove all messages of queue {name}?", abort=True)
    query = {"namespace": namespace, "group": group}
    client.send("POST", "queues", name, "purge", query=query)
    say(f"purged {name}")


@queues_app.command()
def delete(
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    yes: options.Yes = False,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Delete a queue, and its topic if that was made for it and has no other queue."""
    client = AdminClient.of(settings_of(config, assignments))
    if not yes:
        typer.confirm(f"Delete queue {name} and its messages?", abort=True)
    query = {"namespace": namespace, "group": group}
    client.send("DELETE", "queues", name, query=query)
    say(f"deleted {name}")


def _parse(settings: list[str] | None) -> dict[str, str | None]:
    """Return settings by name; None where the default is to come back."""
    found: dict[str, str | None] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or name not in QueueSettings.model_fields:
            there = ", ".join(QueueSettings.model_fields)
            msg = f"{setting!r} is not SETTING=VALUE; there are: {there}"
            raise typer.BadParameter(msg)
        found[name] = value or None
    return found


def _settings(queue: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(queue["settings"].items())


def _shown(key: str, value: object) -> object:
    """Return a setting as people read it: spans in words beside the number."""
    if (key, value) in _MEANINGS:
        return f"{value}  ({_MEANINGS[key, value]})"
    if key.endswith("_ms") and isinstance(value, int) and value > 0:
        return f"{value}  ({format_span(value)})"
    return None if value == "" else value


def _print_pairs(title: str, pairs: Mapping[str, object]) -> None:
    rows = [{title: key, "value": value} for key, value in pairs.items()]
    print_rows(rows, [title, "value"], as_json=False)
