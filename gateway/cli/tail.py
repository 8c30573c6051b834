"""``headgate tail``: the last records of a topic, and those that come."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import in_namespace
from gateway.cli.output import note
from gateway.cli.record_lines import json_line, key_terms, parse_start, record_line

_WAIT_MS: Final = 10_000
_STEP: Final = 1_000
_COUNT_MAX: Final = 1_000
_SEARCHED: Final = 100_000  # before the end of each partition, with something to look for


@in_namespace
def tail(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete.topics)],
    *,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=0,
            max=_COUNT_MAX,
            help="Records to print, the last 10 if unset.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="oldest|OFFSET|TIME",
            help="Print from there on, the first ones instead of the last.",
        ),
    ] = None,
    follows: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes; Ctrl-C ends it.")
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Only this key; 0x... is hexadecimal.")
    ] = None,
    contains: Annotated[str, typer.Option(help="Only values that contain this text.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Print the last records of a topic, and with --follow those that come."""
    terms: dict[str, Any] = {"partition": partition, "contains": contains}
    terms |= key_terms(key) if key is not None else {}
    write = json_line if as_json else record_line
    ends = _follow(client, topic, terms, {})["positions"] if follows else {}
    if start is None:
        found = _last(client, topic, terms, 10 if count is None else count)
    else:
        found = list(
            _first(client, topic, {**terms, **parse_start(start)}, count, follows=follows)
        )
    for record in found:
        if not follows or record["offset"] < ends.get(str(record["partition"]), 0):
            print(write(record), flush=follows)
    if follows:
        _print_coming(client, topic, terms, ends, write)
    elif not found:
        note(f"no record to show; send one: headgate send {topic} hello")


def _last(
    client: AdminClient, topic: str, terms: Mapping[str, Any], count: int
) -> list[dict[str, Any]]:
    """Return the newest records of all partitions, in the order of their times."""
    if count == 0:
        return []
    newest = (
        _SEARCHED if terms["contains"] or "key" in terms or "key_base64" in terms else count
    )
    body = {**terms, "browse": True, "newest": newest}
    found = sorted(
        _search(client, topic, body),
        key=lambda one: (one["timestamp_unix_ms"], one["partition"], one["offset"]),
    )
    return found[-count:]


def _first(
    client: AdminClient,
    topic: str,
    body: Mapping[str, Any],
    count: int | None,
    *,
    follows: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the first records from a start on; all of them with ``--follow``."""
    most = count if count is not None else (None if follows else 10)
    for at, record in enumerate(_search(client, topic, {**body, "browse": True})):
        if most is not None and at >= most:
            return
        yield record


def _search(
    client: AdminClient, topic: str, body: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    asked = {**body, "limit": _STEP}
    while True:
        step = client.send("POST", "topics", topic, "find", body=asked)
        yield from step["matches"]
        if step["next"] is None:
            return
        asked["next"] = step["next"]


def _follow(
    client: AdminClient, topic: str, terms: Mapping[str, Any], positions: Mapping[str, int]
) -> dict[str, Any]:
    body = {**terms, "positions": positions, "wait_ms": _WAIT_MS}
    return client.send("POST", "topics", topic, "follow", body=body)


def _print_coming(
    client: AdminClient,
    topic: str,
    terms: Mapping[str, Any],
    positions: dict[str, int],
    write: Any,  # noqa: ANN401
) -> None:
    """Print records as they come, until the user ends it."""
    try:
        while positions:
            step = _follow(client, topic, terms, positions)
            positions = step["positions"]
            for record in step["matches"]:
                print(write(record), flush=True)
        note(f"this node serves no partition of {topic}")
    except KeyboardInterrupt:
        return
