"""Lists of the HTTP API: sorted, filtered, cut to a page and to columns, sent in pieces.

The rows of a page are made alone where the order is that of names; for another order all are.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.responses import JSONResponse, Response, StreamingResponse

from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import ApiFault, bad_request
from adapters.amqp.management.turns import ROWS_PER_TURN, in_turns, sorted_in_turns
from gateway.regexes import InvalidRegex, compile_regex

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
EXPRESSION_CHARS_MAX: Final = 500
NO_CACHE: Final = {"cache-control": "no-cache"}
_BY_NAME: Final = frozenset({"", "name", "vhost"})

Row = dict[str, Any]


class Item(NamedTuple):
    """Thing of a list: the names that it is sorted by, and the way to make its row."""

    names: tuple[str, ...]
    make: Callable[[], Row]

    @property
    def name(self) -> str:
        """The name that filters are for."""
        return self.names[-1]


class _Page(NamedTuple):
    number: int
    size: int


def reply(call: Call, row: Row, status: int = HTTPStatus.OK) -> Response:
    """Return one object, cut to the columns that were asked for."""
    return JSONResponse(_cut(row, _columns(call)), status, NO_CACHE)


def rows_as_items(rows: Iterable[Row], *names: str) -> list[Item]:
    """Return rows that are made already, to be sorted by fields."""
    return [
        Item(tuple(str(row.get(name, "")) for name in names), lambda row=row: row)  # type: ignore[misc]
        for row in rows
    ]


async def reply_list(call: Call, items: Sequence[Item]) -> Response:
    """Return a list. Error: ``ApiFault`` 400 for a page that is not there."""
    page = _page(call)
    sort = call.query.get("sort", "")
    is_reversed = call.query.get("sort_reverse") == "true"
    ordered = await sorted_in_turns(items, lambda item: item.names, is_reversed=is_reversed)
    if sort not in _BY_NAME:
        ordered = await sorted_in_turns(
            await _made(ordered),
            lambda item: _sort_key(item.make(), sort),
            is_reversed=is_reversed,
        )
    if page is None:
        return _stream(call, ordered, "[", "]")
    kept = await _filtered(call, ordered)
    start = (page.number - 1) * page.size
    if start > len(kept):
        text = (
            f"Page out of range, page: {page.number} page size: {page.size}, len: {len(kept)}"
        )
        raise ApiFault(HTTPStatus.BAD_REQUEST, "page_out_of_range", text)
    cut = kept[start : start + page.size]
    facts = {
        "filtered_count": len(kept),
        "item_count": len(cut),
        "page": page.number,
        "page_count": -(-len(kept) // page.size),
        "page_size": page.size,
        "total_count": len(items),
    }
    return _stream(call, cut, json.dumps(facts)[:-1] + ',"items":[', "]}")


def _page(call: Call) -> _Page | None:
    number, size = call.query.get("page"), call.query.get("page_size")
    if number is None:
        return None
    try:
        page = _Page(int(number), PAGE_SIZE if size is None else int(size))
    except ValueError:
        raise bad_request("Pagination parameters are invalid") from None
    if page.number < 1 or not 1 <= page.size <= PAGE_SIZE_MAX:
        text = (
            f"Invalid pagination parameters: page number {page.number}, "
            f"page size {'undefined' if size is None else page.size}"
        )
        raise ApiFault(HTTPStatus.BAD_REQUEST, "invalid_pagination_parameters", text)
    return page


async def _filtered(call: Call, items: Sequence[Item]) -> list[Item]:
    text = call.query.get("name", "")
    if not text:
        return list(items)
    if call.query.get("use_regex") != "true":
        lowered = text.lower()
        return [item async for item in in_turns(items) if lowered in item.name.lower()]
    if len(text) > EXPRESSION_CHARS_MAX:
        raise bad_request(f"use_regex: more than {EXPRESSION_CHARS_MAX} characters")
    try:
        matches = compile_regex(f"(?i){text}").search
    except InvalidRegex as error:
        raise bad_request(f"use_regex: {error}") from error
    return [item async for item in in_turns(items) if matches(item.name)]


async def _made(items: Sequence[Item]) -> list[Item]:
    """Return items with their rows made."""
    return [_made_one(item.names, item.make()) async for item in in_turns(items)]


def _made_one(names: tuple[str, ...], row: Row) -> Item:
    return Item(names, lambda: row)


def _sort_key(row: Row, path: str) -> tuple[int, Any]:
    found: Any = row
    for part in path.split("."):
        found = found.get(part, 0) if isinstance(found, dict) else 0
    if found is None:
        return 0, 0
    if isinstance(found, bool | int | float):
        return 0, found
    return 1, found if isinstance(found, str) else json.dumps(found, sort_keys=True)


def _stream(call: Call, items: Sequence[Item], head: str, tail: str) -> Response:
    columns = _columns(call)

    async def pieces() -> AsyncIterator[str]:
        comma = head
        for start in range(0, len(items), ROWS_PER_TURN):
            rows = [_cut(item.make(), columns) for item in items[start : start + ROWS_PER_TURN]]
            text = json.dumps(rows, separators=(",", ":"))[1:-1]
            yield f"{comma}{text}"
            comma = ","
            await asyncio.sleep(0)
        yield tail if comma == "," else head + tail

    return StreamingResponse(pieces(), media_type="application/json", headers=NO_CACHE)


_Columns = dict[str, Any] | None


def _columns(call: Call) -> _Columns:
    """Return the columns as a tree; None for all."""
    text = call.query.get("columns")
    if text is None:
        return None
    tree: dict[str, Any] = {}
    for column in filter(None, text.split(",")):
        node: _Columns = tree
        *path, last = column.split(".")
        for part in path:
            node = node.setdefault(part, {}) if node is not None else None
        if node is not None:
            node[last] = None
    return tree


def _cut(found: Any, columns: _Columns) -> Any:  # noqa: ANN401 - JSON
    if columns is None:
        return found
    if isinstance(found, list):
        return [_cut(one, columns) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        name: _cut(value, columns[name]) for name, value in found.items() if name in columns
    }
