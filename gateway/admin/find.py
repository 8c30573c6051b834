"""REST for searching a topic: ``POST /v1/topics/<name>/find``, one bounded step per call."""

import base64
import binascii
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import bytes_as_text, check_may, read_body, topic_name
from gateway.admin.state import AdminState
from gateway.auth.ports import Operation
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest
from gateway.record_search import (
    BEGINNING,
    LIMIT_MAX,
    Match,
    Query,
    RecordSearch,
    SearchPosition,
)


class PlaceBody(FrozenConfig):
    """Position at which a search continues; offset -1 is the query's start of the partition."""

    partition: int = Field(ge=0)
    offset: int = Field(default=BEGINNING, ge=BEGINNING)


class SearchTerms(FrozenConfig):
    """Terms that a record has to match, all of them."""

    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    contains: str = ""


class Search(SearchTerms):
    """Body of the call. ``next`` is the one of the previous answer.

    ``browse``: without terms, everything matches. ``newest``: begin so many records before the
    end of each partition.
    """

    browse: bool = False
    newest: int | None = Field(default=None, ge=1)
    partition: int | None = Field(default=None, ge=0)
    offset_min: int = Field(default=0, ge=0)
    timestamp_unix_ms_min: int | None = None
    limit: int = Field(default=LIMIT_MAX, ge=1, le=LIMIT_MAX)
    next: PlaceBody | None = None


def routes(state: AdminState) -> list[Route]:
    """Return the route."""

    async def find(request: Request) -> Response:
        kernel = state.running()
        name = topic_name(request)
        topic = kernel.topics.get(name)
        check_may(kernel, request, Operation.READ, name)
        search = await read_body(request, Search)
        start = SearchPosition(search.partition or 0)
        if search.next is not None:
            start = SearchPosition(search.next.partition, search.next.offset)
        step = await RecordSearch(kernel.broker).step(
            topic,
            query_of(search, browses=search.browse),
            start=start,
            only_partition=search.partition is not None,
            limit=search.limit,
        )
        return JSONResponse(
            {
                "matches": [match_view(match) for match in step.matches],
                "read_bytes": step.read_bytes,
                "undecodable_count": step.undecodable_count,
                "next": None if step.next is None else step.next._asdict(),
            }
        )

    return [Route("/topics/{topic}/find", find, methods=["POST"])]


def query_of(terms: SearchTerms, *, browses: bool) -> Query:
    """Return the query of a body. Errors: ``InvalidRequest``."""
    key = None if terms.key is None else terms.key.encode()
    if terms.key_base64 is not None:
        try:
            key = base64.b64decode(terms.key_base64, validate=True)
        except binascii.Error as error:
            msg = f"key_base64: {error}"
            raise InvalidRequest(msg) from error
    headers = tuple((name, value.encode()) for name, value in terms.headers.items())
    query = Query(key, headers, contains=terms.contains.encode(), browses=browses)
    if not isinstance(terms, Search):
        return query
    return query._replace(
        offset_min=terms.offset_min,
        timestamp_unix_ms_min=terms.timestamp_unix_ms_min,
        newest=terms.newest,
    )


def match_view(match: Match) -> dict[str, Any]:
    """Return a record that was found; bytes that are no text are in base64."""
    record = match.record
    return {
        "partition": match.partition,
        "offset": record.offset,
        "timestamp_unix_ms": record.timestamp_unix_ms,
        **bytes_as_text("key", record.key),
        **bytes_as_text("value", record.value),
        "headers": [
            {"name": name, **bytes_as_text("value", value)} for name, value in record.headers
        ],
    }
