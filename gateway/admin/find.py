"""REST for searching a topic: ``POST /v1/topics/<name>/find``, one bounded step per call."""

import base64
import binascii
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import bytes_as_text, read_body, topic_name
from gateway.admin.state import AdminState
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


class Search(FrozenConfig):
    """Body of the call. ``next`` is the one of the previous answer."""

    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    partition: int | None = Field(default=None, ge=0)
    offset_min: int = Field(default=0, ge=0)
    timestamp_unix_ms_min: int | None = None
    limit: int = Field(default=LIMIT_MAX, ge=1, le=LIMIT_MAX)
    next: PlaceBody | None = None


def routes(state: AdminState) -> list[Route]:
    """Return the route."""

    async def find(request: Request) -> Response:
        kernel = state.running()
        topic = kernel.topics.get(topic_name(request))
        search = await read_body(request, Search)
        start = SearchPosition(search.partition or 0)
        if search.next is not None:
            start = SearchPosition(search.next.partition, search.next.offset)
        step = await RecordSearch(kernel.broker).step(
            topic,
            _query(search),
            start=start,
            only_partition=search.partition is not None,
            limit=search.limit,
        )
        return JSONResponse(
            {
                "matches": [_match(match) for match in step.matches],
                "read_bytes": step.read_bytes,
                "undecodable_count": step.undecodable_count,
                "next": None if step.next is None else step.next._asdict(),
            }
        )

    return [Route("/topics/{topic}/find", find, methods=["POST"])]


def _query(search: Search) -> Query:
    key = None if search.key is None else search.key.encode()
    if search.key_base64 is not None:
        try:
            key = base64.b64decode(search.key_base64, validate=True)
        except binascii.Error as error:
            msg = f"key_base64: {error}"
            raise InvalidRequest(msg) from error
    headers = tuple((name, value.encode()) for name, value in search.headers.items())
    return Query(key, headers, search.offset_min, search.timestamp_unix_ms_min)


def _match(match: Match) -> dict[str, Any]:
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
