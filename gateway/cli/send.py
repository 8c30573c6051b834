"""``headgate send``: append records to a topic, from the command line or standard input."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Final

import typer

from gateway.cli import complete
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import in_namespace
from gateway.cli.output import note, say
from gateway.cli.record_lines import key_terms

_BATCH_RECORDS: Final = 500
_BATCH_CHARS: Final = 256_000
_LINE_CHARS_MAX: Final = 700_000  # of a body of 1 MiB

Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key; 0x... is hexadecimal.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
]
Value = Annotated[
    str | None,
    typer.Argument(help="The value; without it, each line of standard input is one."),
]


@in_namespace
def send(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete.topics)],
    value: Value = None,
    *,
    key: Key = None,
    header: Header = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="The partition; else by the key.")
    ] = None,
    creates: Annotated[
        bool, typer.Option("--create", help="Create the topic if it is missing.")
    ] = False,
) -> None:
    """Append a record to a topic, or one for each line of standard input."""
    if creates:
        create_if_missing(client, topic)
    common: dict[str, Any] = {"headers": parse_headers(header), "partition": partition}
    common |= key_terms(key) if key is not None else {}
    send_all(client, topic, values_of(value), common)


def send_all(
    client: AdminClient, topic: str, values: Iterable[str], common: dict[str, Any]
) -> None:
    """Append values in batches, and print where the last one is."""
    count, last = 0, None
    for batch in batches(values):
        body = {"records": [{**common, "value": value} for value in batch]}
        appended = client.send("POST", "topics", topic, "record-batch", body=body)["records"]
        count, last = count + len(appended), appended[-1]
        if sys.stderr.isatty() and count > len(appended):
            sys.stderr.write(f"\r{count:,} sent ")
    if last is None:
        note("nothing to send: standard input has no line")
        return
    if sys.stderr.isatty() and count > _BATCH_RECORDS:
        sys.stderr.write("\n")
    place = f"partition {last['partition']}, offset {last['offset']}"
    say(
        f"sent to {topic}: {place}"
        if count == 1
        else f"sent {count:,} to {topic}, last {place}"
    )


def values_of(value: str | None) -> Iterator[str]:
    """Yield the value, or the lines of standard input without their ends."""
    if value is not None:
        yield value
        return
    if sys.stdin.isatty():
        note("reading lines from the terminal; Ctrl-D ends it")
    for line in sys.stdin:
        text = line.rstrip("\n")
        if len(text) > _LINE_CHARS_MAX:
            raise typer.BadParameter(f"a line is longer than {_LINE_CHARS_MAX:,} characters")
        yield text


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield values in lists of bounded count and size.

    >>> list(batches(["a", "b"]))
    [['a', 'b']]
    """
    source, held = iter(values), list[str]()
    size = 0
    for value in source:
        held.append(value)
        size += len(value)
        if len(held) >= _BATCH_RECORDS or size >= _BATCH_CHARS:
            yield held
            held, size = [], 0
    if held:
        yield held


def parse_headers(given: Iterable[str] | None) -> list[dict[str, str]]:
    """Return the headers of ``NAME=VALUE`` texts, in their order."""
    found = []
    for text in islice(given or (), 100):
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        found.append({"name": name, "value": value})
    return found


def create_if_missing(client: AdminClient, topic: str) -> None:
    """Create a topic unless it is there."""
    from gateway.cli.admin_client import Refused

    try:
        client.send("POST", "topics", body={"name": topic})
    except Refused as error:
        if error.kind != "TopicExists":
            raise
