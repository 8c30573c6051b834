"""``headgate dlq``: list, show, redrive and purge dead letters."""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from threading import Event
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient, Refused
from gateway.cli.node_commands import confirm, in_namespace
from gateway.cli.output import format_span, print_json, print_rows, say
from gateway.cli.progress import Progress
from gateway.cli.synonyms import command_group

_NONE: Final = (
    "no dead-letter queues; headgate queues set NAME dead_letter_topic=TOPIC makes one"
)
VALUE_CHARS_SHOWN: Final = 60
POLL_S: Final = 0.2
_ACTIVE: Final = ("RUNNING", "CANCELLING")
_COMPLETED: Final = "COMPLETED"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

dlq_app = command_group("Dead letters of a running node.")

Name = Annotated[
    str, typer.Argument(help="The dead-letter queue's name.", autocompletion=complete.queues)
]


@dlq_app.command("ls")
@in_namespace
def list_dead_letter_queues(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List dead-letter queues, their messages, and the queues that send to them."""
    found = client.get("dlq")["dlqs"]
    if as_json:
        print_json(found)
        return
    rows = [
        {
            **queue,
            **(queue["counts"] or {}),
            "oldest": format_span(queue["oldest_age_ms"]),
        }
        for queue in found
    ]
    print_rows(
        rows, ["name", "ready", "in_flight", "oldest", "sources"], as_json=False, if_empty=_NONE
    )


@dlq_app.command()
@in_namespace
def show(
    client: AdminClient,
    name: Name,
    *,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, max=1_000, help="Oldest letters to show at most."),
    ] = 100,
    as_json: options.AsJson = False,
) -> None:
    """Show dead letters grouped by reason, without taking them."""
    found = client.get("dlq", name, "messages", query={"count": str(count)})
    if as_json:
        print_json(found)
        return
    letters = sorted(found["messages"], key=_reason)
    if not letters:
        say(f"{name} holds no messages")
        return
    for place, (reason, group) in enumerate(groupby(letters, key=_reason)):
        of_reason = list(group)
        say(f"{'' if place == 0 else chr(10)}{reason}: {len(of_reason)} message(s)")
        columns = ["place", "from", "attempts", "age", "key", "value", "state"]
        print_rows(_letters(of_reason), columns, as_json=False)
    if found["total"] > len(letters):
        say(f"\nthe oldest {len(letters)} of {found['total']}; --count shows more")


@dlq_app.command()
@in_namespace
def redrive(
    client: AdminClient,
    name: Name,
    *,
    to: Annotated[
        str | None, typer.Option("--to", help="Target topic, instead of each letter's source.")
    ] = None,
    rate_per_s: Annotated[
        int | None,
        typer.Option("--rate", min=1, help="Messages per second; else no limit."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all are moved, and show the progress.")
    ] = False,
    yes: options.Yes = False,
) -> None:
    """Start to move dead letters back to their source; `status` shows the progress."""
    client.get("dlq", name, "redrives")  # is there such a queue?
    where = to or "the queues they came from"
    confirm(lambda: f"Move the messages of {name} to {where}?", yes=yes)
    body = {"destination": to, "rate_per_s": rate_per_s}
    begun = client.send("POST", "dlq", name, "redrives", body=body)
    total = begun["total_at_start"]
    if wait:
        _wait(client, name, begun)
    else:
        say(f"moving {total} message(s) of {name}; headgate dlq status {name}")


def _wait(client: AdminClient, name: str, begun: Mapping[str, Any]) -> None:
    """Show a redrive's progress until it ends. Error: ``Refused`` when it fails or is cancelled."""
    progress = Progress(begun["total_at_start"], unit="messages")
    one, pause = begun, Event()
    while one["status"] in _ACTIVE:
        pause.wait(POLL_S)
        found = client.get("dlq", name, "redrives")["redrives"]
        one = next(each for each in found if each["handle"] == begun["handle"])
        progress.show(one["moved"] + one["skipped"])
    progress.end()
    said = (
        f"{one['moved']} of {one['total_at_start']} message(s) moved, {one['skipped']} skipped"
    )
    if one["failure"] or one["status"] != _COMPLETED:
        raise Refused(f"{one['status'].lower()}: {one['failure'] or said}")
    say(said)


@dlq_app.command()
@in_namespace
def status(client: AdminClient, name: Name, *, as_json: options.AsJson = False) -> None:
    """Show the last redrives of a dead-letter queue, newest first. A restart forgets them."""
    found = client.get("dlq", name, "redrives")["redrives"]
    if as_json:
        print_json(found)
        return
    rows = [
        {
            **one,
            "destination": one["destination"] or "where each came from",
            "total": one["total_at_start"],
            "begun": f"{format_span(one['age_ms'])} ago",
        }
        for one in found
    ]
    columns = [
        "handle",
        "status",
        "moved",
        "skipped",
        "total",
        "begun",
        "destination",
        "rate_per_s",
    ]
    if any(one["failure"] for one in found):
        columns.append("failure")
    print_rows(rows, columns, as_json=False, if_empty=f"no redrive of {name} since the start")


@dlq_app.command()
@in_namespace
def cancel(client: AdminClient, name: Name) -> None:
    """Cancel the running redrive; messages moved already stay moved."""
    ended = client.send("POST", "dlq", name, "redrives", "cancel")
    say(f"ends now; {ended['moved']} of {ended['total_at_start']} message(s) are moved so far")


@dlq_app.command()
@in_namespace
def purge(client: AdminClient, name: Name, *, yes: options.Yes = False) -> None:
    """Remove all messages of a dead-letter queue."""
    confirm(lambda: _question(client, name), yes=yes)
    client.send("POST", "dlq", name, "purge")
    say(f"purged {name}")


def _question(client: AdminClient, name: str) -> str:
    """Return the question before a removal. Error: ``Refused`` where there is no such queue."""
    total = client.get("dlq", name, "messages", query={"count": "1"})["total"]
    return f"Remove all {total:,} dead letter(s) of {name}?"


def _reason(letter: Mapping[str, Any]) -> str:
    return letter["dlq"].get("reason") or "no reason given"


def _letters(letters: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return table rows: each letter's source and the beginning of its value."""
    return [
        {
            "place": f"{letter['partition']}/{letter['offset']}",
            "from": _source(letter["dlq"]),
            "attempts": _number(letter["dlq"].get("attempts")),
            "age": format_span(letter["age_ms"]),
            "key": _shortened(letter, "key"),
            "value": _shortened(letter, "value"),
            "state": letter["state"].replace("_", " "),
        }
        for letter in letters
    ]


def _number(text: str | None) -> int | str | None:
    """Return a header's number, or its text if it is none."""
    return int(text) if text and _NUMBER.fullmatch(text) else text


def _source(dlq: Mapping[str, str]) -> str | None:
    topic = dlq.get("source.topic")
    if topic is None:
        return None
    return f"{topic} {dlq.get('source.partition', '?')}/{dlq.get('source.offset', '?')}"


def _shortened(letter: Mapping[str, Any], name: str) -> str | None:
    data = letter.get(f"{name}_base64")
    text = letter.get(name) if data is None else f"base64 {data}"
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= VALUE_CHARS_SHOWN else f"{line[:VALUE_CHARS_SHOWN]}..."
