"""``headgate queues``: queues, their messages by state, and their settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import Change, confirm, in_namespace, parse_change
from gateway.cli.output import format_span, note, print_json, print_rows, say
from gateway.cli.record_lines import key_terms, shown
from gateway.cli.send import Header, Key, Value, parse_headers, send_all, values_of
from gateway.cli.synonyms import command_group
from gateway.model import DEFAULT_GROUP

_NONE: Final = "no queues; make one: headgate queues create NAME"
_MEANINGS: Final[Mapping[tuple[str, object], str]] = {
    ("retention_ms", -1): "no end",
    ("attempts_max", 0): "any number",
    ("delivery_limit", -1): "any number",
}


queues_app = command_group("Queues of a running node.")

Name = Annotated[
    str,
    typer.Argument(
        help="The queue's name, which is its topic's.", autocompletion=complete.queues
    ),
]
Group = Annotated[str, typer.Option(help="The queue group, where a topic has several.")]
Settings = Annotated[
    list[Change] | None,
    typer.Argument(
        parser=parse_change,
        metavar="SETTING=VALUE",
        help="order (none, key: one of a key at a time, fair: quiet keys first, priority: the "
        "highest first, up to priority_max), lease_ms, delay_ms, retention_ms, message_ttl_ms, "
        "attempts_max, delivery_limit, retry_delay_ms, retry_delay_ms_max, retry_delay_on, "
        "dead_letter_topic, dead_letter_exchange, dead_letter_routing_key, in_flight_max, "
        "length_max, length_bytes_max, overflow (drop-head, reject-publish, reject-publish-dlx), "
        "expires_ms, single_active.",
    ),
]


@queues_app.command("ls")
@in_namespace
def list_queues(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List queues with their messages by state and the age of the oldest."""
    found = client.get("queues")["queues"]
    if as_json:
        print_json(found)
        return
    rows = [
        {
            **queue,
            **queue["counts"],
            "oldest": format_span(queue["oldest_age_ms"]),
            "order": queue["settings"]["order"],
            "dead_letters": queue["settings"]["dead_letter_topic"]
            or queue["settings"]["dead_letter_exchange"]
            or None,
        }
        for queue in found
    ]
    columns = ["name", "ready", "in_flight", "delayed", "oldest", "order", "dead_letters"]
    if any(queue["group"] != DEFAULT_GROUP for queue in found):
        columns.insert(1, "group")
    print_rows(rows, columns, as_json=False, if_empty=_NONE)


@queues_app.command()
@in_namespace
def create(
    client: AdminClient,
    name: Name,
    settings: Settings = None,
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Partitions of a new topic."),
    ] = None,
    group: Group = DEFAULT_GROUP,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Begin at the topic's start instead of its end."),
    ] = False,
) -> None:
    """Create a queue with a topic of its own, or on an existing topic."""
    body = {
        "name": name,
        "group": group,
        "partitions": partitions,
        "from_start": from_start,
        "settings": dict(settings or ()),
    }
    made = client.send("POST", "queues", body=body)
    where = "" if made["owns_topic"] else " of the topic that was there"
    say(f"created {name} on {made['partitions']} partition(s){where}")


@queues_app.command()
@in_namespace
def show(
    client: AdminClient,
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    as_json: options.AsJson = False,
) -> None:
    """Show a queue's messages by state, its settings, and its dead-letter sources."""
    queue = client.get("queues", name, query={"group": group})
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


@queues_app.command()
@in_namespace
def peek(
    client: AdminClient,
    name: Name,
    *,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=200, help="Oldest messages to show.")
    ] = 10,
    group: Group = DEFAULT_GROUP,
    as_json: options.AsJson = False,
) -> None:
    """Show a queue's oldest messages, whatever their state, without taking them."""
    query = {"limit": str(count), "group": group}
    found = client.get("queues", name, "messages", query=query)
    if as_json:
        print_json(found["messages"])
        return
    rows = [
        {
            "place": f"{one['partition']}/{one['offset']}",
            "state": one["state"].replace("_", " "),
            "age": format_span(one["age_ms"]),
            "key": shown(one, "key", chars_max=60),
            "value": shown(one, "value", chars_max=60),
        }
        for one in found["messages"]
    ]
    empty = f"{name} holds no messages; send one: headgate queues send {name} hello"
    print_rows(rows, ["place", "state", "age", "key", "value"], as_json=False, if_empty=empty)
    if found["next"]:
        note(f"the oldest {len(rows)} of {found['total']:,}; -n shows more")


@queues_app.command("send")
@in_namespace
def send_message(
    client: AdminClient,
    name: Name,
    value: Value = None,
    *,
    key: Key = None,
    header: Header = None,
) -> None:
    """Send a message to a queue, or one for each line of standard input.

    The key is the message group of a queue with the order key or fair.
    """
    client.get("queues", name)  # is there such a queue?
    common: dict[str, Any] = {"headers": parse_headers(header)}
    common |= key_terms(key) if key is not None else {}
    send_all(client, name, values_of(value), common)


@queues_app.command("set")
@in_namespace
def alter(
    client: AdminClient,
    name: Name,
    settings: Settings = None,
    *,
    group: Group = DEFAULT_GROUP,
) -> None:
    """Change settings of a queue; an empty value (dead_letter_topic=) restores the default."""
    if not settings:
        msg = "name at least one setting, lease_ms=60000"
        raise typer.BadParameter(msg)
    body = {"settings": dict(settings)}
    client.send("PATCH", "queues", name, body=body, query={"group": group})
    shown = " ".join(f"{key}={value or ''}" for key, value in settings)
    say(f"set {shown} of {name}")


@queues_app.command()
@in_namespace
def purge(
    client: AdminClient,
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    yes: options.Yes = False,
) -> None:
    """Remove all messages of a queue, also those in flight and delayed."""
    confirm(lambda: f"Remove all messages of {_counted(client, name, group)}?", yes=yes)
    client.send("POST", "queues", name, "purge", query={"group": group})
    say(f"purged {name}")


@queues_app.command()
@in_namespace
def delete(
    client: AdminClient,
    name: Name,
    *,
    group: Group = DEFAULT_GROUP,
    yes: options.Yes = False,
) -> None:
    """Delete a queue, and its topic if it was made for the queue and has no other."""
    confirm(lambda: f"Delete {_counted(client, name, group)} and its messages?", yes=yes)
    client.send("DELETE", "queues", name, query={"group": group})
    say(f"deleted {name}")


def _counted(client: AdminClient, name: str, group: str) -> str:
    """Return a queue with its counts. Error: ``Refused`` where there is none."""
    counts = client.get("queues", name, query={"group": group})["counts"]
    held = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in counts.items())
    return f"queue {name} ({held})"


def _settings(queue: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(queue["settings"].items())


def _shown(key: str, value: object) -> object:
    """Return a setting as text, with time spans in words beside the number."""
    if (key, value) in _MEANINGS:
        return f"{value}  ({_MEANINGS[key, value]})"
    if key.endswith("_ms") and isinstance(value, int) and value > 0:
        return f"{value}  ({format_span(value)})"
    return None if value == "" else value


def _print_pairs(title: str, pairs: Mapping[str, object]) -> None:
    rows = [{title: key, "value": value} for key, value in pairs.items()]
    print_rows(rows, [title, "value"], as_json=False)
