"""Output of commands: tables for people, JSON for programs, one line for an error."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.cli.table import table_lines, visible

_SECOND_MS: Final = 1_000
_KIB: Final = 1_024
_CONTROLS_OF_JSON: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", _SECOND_MS))


def print_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    if_empty: str = "",
) -> None:
    """Print rows; ``columns`` are the keys that a table shows, in this order.

    ``if_empty`` takes the place of a table without rows: a line on standard error.
    """
    found = list(rows)
    if as_json:
        print_json(found)
        return
    if if_empty and not found:
        note(if_empty)
        return
    for line in table_lines(found, columns, width=_width(), is_bold=_is_terminal()):
        print(line)


def print_json(content: object) -> None:
    """Print a JSON document."""
    print(json.dumps(content, indent=2, ensure_ascii=False).translate(_CONTROLS_OF_JSON))


def format_span(span_ms: int | None) -> str | None:
    """Return a span of time in its two largest units; None stays None.

    >>> format_span(93_784_000), format_span(59_999), format_span(250)
    ('1d 2h', '59s', '250ms')
    """
    if span_ms is None:
        return None
    if span_ms < _SECOND_MS:
        return f"{span_ms}ms"
    parts: list[str] = []
    rest_ms = span_ms
    for unit, unit_ms in _UNITS_MS:
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break  # "2d", not "2d 5s"
    return " ".join(parts[:2])


def format_size(size_bytes: int) -> str:
    """Return a size in its largest whole unit.

    >>> format_size(999), format_size(1_572_864)
    ('999 bytes', '1.5 MiB')
    """
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    size, unit = size_bytes / _KIB, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if size < _KIB:
            break
        size, unit = size / _KIB, larger
    return f"{size:,.1f} {unit}"


def say(text: str) -> None:
    """Print lines without interpreting markup."""
    print("\n".join(map(visible, text.split("\n"))))


def note(text: str) -> None:
    """Print a remark on standard error."""
    sys.stdout.flush()
    print(visible(text), file=sys.stderr)


def fail(text: str) -> None:
    """Print why a command failed, one line per cause."""
    for line in text.splitlines():
        print(f"headgate: {visible(line)}", file=sys.stderr)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _width() -> int | None:
    """Return the terminal's width; None in a pipe, where no column is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
