"""Tables for a terminal or a pipe: aligned columns, folded where a terminal is too narrow."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_GAP: Final = "  "
_NARROWEST: Final = 6
_BOLD: Final = "\x1b[1m{}\x1b[0m"
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def table_lines(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    width: int | None = None,
    is_bold: bool = False,
) -> Iterator[str]:
    """Yield the lines of a table: a header, then the rows; numbers are aligned to the right.

    ``width``: columns of the terminal, in which cells are folded; None: as wide as needed.

    >>> list(table_lines([{"name": "a", "size_bytes": 5}], ["name", "size_bytes"]))
    ['name  size bytes', 'a              5']
    """
    titles = [column.replace("_", " ") for column in columns]
    cells = [[visible(_text(row.get(column))) for column in columns] for row in rows]
    to_right = [
        bool(rows) and all(_is_number(row.get(column)) for row in rows) for column in columns
    ]
    widths = [
        max(cells_wide(line[at]) for line in (titles, *cells)) for at in range(len(columns))
    ]
    if width is not None:
        widths = _fitted(widths, width)
    header = _BOLD if is_bold else "{}"
    yield from (header.format(line) for line in _folded(titles, widths, to_right))
    for line in cells:
        yield from _folded(line, widths, to_right)


def visible(text: str) -> str:
    r"""Return text with its control characters escaped, for a terminal.

    >>> visible("\x1b[2J")
    '\\x1b[2J'
    """
    return text.translate(_CONTROLS)


def cells_wide(text: str) -> int:
    """Return the columns that a text takes on a terminal.

    >>> cells_wide("abc"), cells_wide("東京")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_char_cells, text))


def _char_cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Return widths that fit a terminal, as far as there is room: the widest column gives."""
    found = list(widths)
    spare = sum(found) + len(_GAP) * (len(found) - 1) - width
    while spare > 0:
        at = max(range(len(found)), key=found.__getitem__)
        others = [one for place, one in enumerate(found) if place != at]
        least = max(_NARROWEST, max(others, default=0) - 1)
        cut = min(spare, max(1, found[at] - least))
        if found[at] - cut < _NARROWEST:
            break
        found[at] -= cut
        spare -= cut
    return found


def _folded(
    cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]
) -> Iterator[str]:
    """Yield the lines of one row."""
    parts = [_chunks(cell, wide) for cell, wide in zip(cells, widths, strict=True)]
    for at in range(max(map(len, parts), default=0)):
        line = [
            _padded(part[at] if at < len(part) else "", wide, right=right)
            for part, wide, right in zip(parts, widths, to_right, strict=True)
        ]
        yield _GAP.join(line).rstrip()


def _chunks(text: str, wide: int) -> list[str]:
    if cells_wide(text) <= wide:
        return [text]
    found, chunk, used = [], "", 0
    for char in text:
        need = _char_cells(char)
        if used + need > wide and chunk:
            found.append(chunk)
            chunk, used = "", 0
        chunk += char
        used += need
    return [*found, chunk]


def _padded(text: str, wide: int, *, right: bool) -> str:
    space = " " * (wide - cells_wide(text))
    return space + text if right else text + space


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={part}" for key, part in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value)
