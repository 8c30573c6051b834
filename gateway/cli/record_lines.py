"""Records as lines of text: what ``tail`` and ``peek`` print, and times that users give."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import typer

from gateway.cli.table import visible

VALUE_CHARS_MAX: Final = 200
_OLDEST: Final = frozenset({"oldest", "earliest", "start"})


def time_of(unix_ms: int) -> str:
    """Return a time of this machine's zone, with milliseconds."""
    return (
        datetime.fromtimestamp(unix_ms / 1_000).astimezone().isoformat(timespec="milliseconds")
    )


def parse_time(text: str) -> int:
    """Return the unix milliseconds of a time of ISO 8601, of this zone if it names none."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time like 2026-11-20T10:00") from error


def parse_start(text: str) -> dict[str, int]:
    """Return the terms of a search that begins at an offset, a time, or ``oldest``."""
    if text in _OLDEST:
        return {"offset_min": 0}
    if text.isascii() and text.isdigit():
        return {"offset_min": int(text)}
    return {"timestamp_unix_ms_min": parse_time(text)}


def key_terms(text: str) -> dict[str, str]:
    """Return a key for the REST interface; ``0x...`` is hexadecimal."""
    if not text.startswith("0x"):
        return {"key": text}
    try:
        return {"key_base64": base64.b64encode(bytes.fromhex(text[2:])).decode()}
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}") from error


def shown(
    item: Mapping[str, Any], name: str, *, chars_max: int = VALUE_CHARS_MAX
) -> str | None:
    """Return a value as text or hexadecimal, cut to ``chars_max``; None where there is none."""
    text: str | None
    if f"{name}_base64" in item:
        text = "0x" + base64.b64decode(item[f"{name}_base64"]).hex()
    else:
        text = item.get(name)
    if text is not None and len(text) > chars_max:
        return text[:chars_max] + "..."
    return text


def record_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line: time, partition/offset, key, value, headers.

    >>> record_line({"timestamp_unix_ms": 0, "partition": 1, "offset": 5, "key": None,
    ...              "value": "a", "headers": [{"name": "h", "value": "x"}]})[23:]
    '+00:00  1/5  -  a  h=x'
    """
    place = f"{record['partition']}/{record['offset']}"
    key, value = shown(record, "key"), shown(record, "value")
    parts = [
        time_of(record["timestamp_unix_ms"]),
        place,
        "-" if key is None else key,
        "(null)" if value is None else value,
        *(f"{one['name']}={shown(one, 'value') or ''}" for one in record["headers"]),
    ]
    return "  ".join(map(visible, parts))


def json_line(record: Mapping[str, Any]) -> str:
    """Return a record as a line of JSON."""
    return json.dumps(record, ensure_ascii=True)
