"""What commands print: tables for people, JSON for programs, one line about an error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool
) -> None:
    """Print rows; ``columns`` are the keys that a table shows, in this order."""
    found = list(rows)
    if as_json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = bool(found) and all(_is_number(row.get(column)) for row in found)
        table.add_column(
            column.replace("_", " "), justify="right" if is_number else "left", overflow="fold"
        )
    for row in found:
        table.add_row(*(_text(row.get(column)) for column in columns))
    _console().print(table)


def print_json(content: object) -> None:
    """Print a JSON document."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """Print a line as it is, without reading markup into it."""
    print(text)


def fail(text: str) -> None:
    """Print why a command failed, one line per cause."""
    for line in text.splitlines():
        print(f"headgate: {line}", file=sys.stderr)


def _console() -> Console:
    # A pipe has no width; then no column is cut.
    console = Console(markup=False, highlight=False)
    return (
        console if console.is_terminal else Console(markup=False, highlight=False, width=1_000)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={part}" for key, part in value.items()) or "-"
    return str(value)
