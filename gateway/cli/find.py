"""``headgate topics find``: search a topic by key or header."""

import base64
import sys
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple, Self

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import in_namespace
from gateway.cli.output import format_size, print_json, print_rows

_VALUE_CHARS_MAX: Final = 80
_MIB: Final = 1_048_576


def _key(text: str) -> dict[str, str]:
    if not text.startswith("0x"):
        return {"key": text}
    try:
        return {"key_base64": base64.b64encode(bytes.fromhex(text[2:])).decode()}
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}") from error


class _Header(NamedTuple):
    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        return cls(name, value)


def _start(text: str) -> dict[str, int]:
    if text.isdecimal():
        return {"offset_min": int(text)}
    try:
        return {"timestamp_unix_ms_min": int(datetime.fromisoformat(text).timestamp() * 1_000)}
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no offset and no time") from error


@in_namespace
def find(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    *,
    key: Annotated[
        dict[str, str] | None,
        typer.Option(
            "--key",
            "-k",
            parser=_key,
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
            parser=_start,
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
    time = datetime.fromtimestamp(match["timestamp_unix_ms"] / 1_000).astimezone()
    headers = {item["name"]: _shown(item, "value") for item in match["headers"]}
    return {
        "partition": match["partition"],
        "offset": match["offset"],
        "time": time.isoformat(timespec="milliseconds"),
        "key": _shown(match, "key"),
        "value": _shown(match, "value"),
        "headers": headers,
    }


def _shown(item: dict[str, Any], name: str) -> str | None:
    """Return a value as text or hexadecimal, cut to what fits a line."""
    if name in item:
        text: str | None = item[name]
    else:
        text = "0x" + base64.b64decode(item[f"{name}_base64"]).hex()
    if text is not None and len(text) > _VALUE_CHARS_MAX:
        return text[:_VALUE_CHARS_MAX] + "..."
    return text
