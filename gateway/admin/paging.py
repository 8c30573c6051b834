"""Pages of long lists: sorted, filtered and cut on the node.

``?limit=50&offset=100&sort=-bytes&contains=ord``: 50 rows from the hundredth on, of those whose
name contains ``ord``, the largest first. Without ``limit`` a list is whole, as commands read it.
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request

from gateway.errors import InvalidRequest

LIMIT_MAX: Final = 1_000
SLICE_ROWS: Final = 1_000
_Row = TypeVar("_Row")


class Page(NamedTuple):
    """Part of a list that is asked for."""

    limit: int
    offset: int
    sort: str
    is_descending: bool
    contains: str

    def names(self, rows: Sequence[_Row], name: Callable[[_Row], str]) -> list[_Row]:
        """Return the rows whose name contains the text."""
        wanted = self.contains.lower()
        return [row for row in rows if wanted in name(row).lower()]

    def cut(self, rows: Sequence[_Row]) -> list[_Row]:
        """Return the page's rows of those that are sorted already, ascending."""
        if self.is_descending:
            rows = rows[::-1]
        return list(rows[self.offset : self.offset + self.limit])

    async def cut_sorted(self, rows: Sequence[_Row], key: Callable[[_Row], Any]) -> list[_Row]:
        """Return the page's rows, sorted by a key; equal ones stay in their order.

        The event loop has its turn after each ``SLICE_ROWS`` rows: to sort 100,000 rows at once
        would hold it for a third of a second.
        """
        sign = -1 if self.is_descending else 1
        runs = []
        for start in range(0, len(rows), SLICE_ROWS):
            part = enumerate(rows[start : start + SLICE_ROWS], start)
            runs.append(
                sorted(((key(row), sign * at) for at, row in part), reverse=self.is_descending)
            )
            await asyncio.sleep(0)
        found, end = [], self.offset + self.limit
        merged = heapq.merge(*runs, reverse=self.is_descending)
        for place, (_, at) in enumerate(islice(merged, end)):
            if place >= self.offset:
                found.append(rows[sign * at])
            if place % SLICE_ROWS == SLICE_ROWS - 1:
                await asyncio.sleep(0)
        return found


def page_of(request: Request, sorts: Collection[str]) -> Page | None:
    """Return the page that the query asks for; None without a limit.

    Errors: ``InvalidRequest``.
    """
    asked = request.query_params
    return page_of_values(asked, sorts) if "limit" in asked else None


def page_of_values(asked: Mapping[str, str], sorts: Collection[str]) -> Page:
    """Return the page that parameters ask for; 50 rows without ``limit``.

    Errors: ``InvalidRequest``.
    """
    sort = asked.get("sort") or next(iter(sorts))
    is_descending, name = sort.startswith("-"), sort.removeprefix("-")
    if name not in sorts:
        raise InvalidRequest(f"sort: {', '.join(sorts)}, or one with -, not {sort[:80]!r}")
    limit, offset = whole_number(asked, "limit", 50), whole_number(asked, "offset", 0)
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"limit: 1 to {LIMIT_MAX}")
    return Page(limit, offset, name, is_descending, asked.get("contains", ""))


def slices_of(rows: Sequence[_Row]) -> list[Sequence[_Row]]:
    """Return rows in slices, between which the loop has its turn."""
    return [rows[start : start + SLICE_ROWS] for start in range(0, len(rows), SLICE_ROWS)]


def whole_number(asked: Any, name: str, default: int) -> int:  # noqa: ANN401 - query parameters
    """Return a parameter that is a number from 0 on. Errors: ``InvalidRequest``."""
    text = asked.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 - fits int64
        raise InvalidRequest(f"{name}: a number from 0 on, not {text[:80]!r}")
    return int(text)
