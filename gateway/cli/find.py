"""``headgate topics find``: search a topic by key or header."""

import sys
from typing import Annotated, Any, Final, NamedTuple, Self

import typer

from gateway.cli import complete, options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import in_namespace
from gateway.cli.output import format_size, print_json, print_rows
from gateway.cli.record_lines import key_terms, parse_start, shown, time_of

_VALUE_CHARS_MAX: Final = 80
_MIB: Final = 1_048_576


class _Header(NamedTuple):
    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        return cls(name, value)


@in_namespace
def find(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    name: Annotated[
        str, typer.Argument(help="The topic's name.", autocompletion=complete.topics)
    ],
    *,
    key: Annotated[
        dict[str, str] | None,
        typer.Option(
            "--key",
            "-k",
            parser=key_terms,
            metavar="TEXT",
            help="The records' key; 0x... is hexadecimal.",
        ),
    ] = None,
    header: Annotated[
        list[_Header] | None,
        typer.Option(
            "--header",
            parser=_Header.parse,
            metavar="NAME=VALUE",
            help="A header of the records; may be repeated.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only this partition.")
    ] = None,
    start: Annotated[
        dict[str, int] | None,
        typer.Option(
            "--from",
            parser=parse_start,
            metavar="OFFSET|TIME",
            help="The first offset, or a time: 2026-11-20T10:00:00+00:00.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Records to print at most.")] = 100,
    as_json: options.AsJson = False,
) -> None:
    """Find records by key or header; fast by key in topics with key.index=true."""
    body: dict[str, Any] = {"headers": dict(header or ()), "partition": partition}
    body |= (key or {}) | (start or {})
    found: list[dict[str, Any]] = []
    progress = _Progress()
    while True:
        body["limit"] = min(limit - len(found), 1_000)
        step = client.send("POST", "topics", name, "find", body=body)
        found += step["matches"]
        progress.add(step)
        if step["next"] is None or len(found) >= limit:
            break
        body["next"] = step["next"]
    progress.end()
    if as_json:
        print_json(found)
        return
    columns = ["partition", "offset", "time", "key", "value", "headers"]
    print_rows(
        [_row(match) for match in found], columns, as_json=False, if_empty=progress.nothing()
    )


class _Progress:
    """Progress of a search: bytes read on a terminal, and unreadable batches at the end."""

    def __init__(self) -> None:
        self._read_bytes = 0
        self._undecodable_count = 0
        self._has_said = False

    def add(self, step: dict[str, Any]) -> None:
        self._read_bytes += step["read_bytes"]
        self._undecodable_count += step["undecodable_count"]
        if step["next"] is not None and sys.stderr.isatty():
            place = f"partition {step['next']['partition']}"
            sys.stderr.write(f"\r{self._read_bytes // _MIB} MiB read, at {place} ")
            self._has_said = True

    def nothing(self) -> str:
        """Print that the search found nothing, and how much was read."""
        return f"no record matches; {format_size(self._read_bytes)} read"

    def end(self) -> None:
        if self._has_said:
            sys.stderr.write("\n")
        if self._undecodable_count:
            sys.stderr.write(f"{self._undecodable_count} batch(es) cannot be decoded\n")


def _row(match: dict[str, Any]) -> dict[str, Any]:
    headers = {item["name"]: _text(item, "value") for item in match["headers"]}
    return {
        "partition": match["partition"],
        "offset": match["offset"],
        "time": time_of(match["timestamp_unix_ms"]),
        "key": _text(match, "key"),
        "value": _text(match, "value"),
        "headers": headers,
    }


def _text(item: dict[str, Any], name: str) -> str | None:
    return shown(item, name, chars_max=_VALUE_CHARS_MAX)
