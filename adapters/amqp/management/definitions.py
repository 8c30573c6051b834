"""Definitions: export, and import; of the whole node, or of one vhost."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from adapters.amqp.management.call import Call
from adapters.amqp.management.definitions_export import of_vhost, whole
from adapters.amqp.management.definitions_import import Importer
from adapters.amqp.management.listing import NO_CACHE

ENTRIES_PER_PIECE: Final = 200


async def export(call: Call) -> Response:
    """Return the definitions, sent in pieces."""
    parts = of_vhost(call.node, call.vhost) if "vhost" in call.parts else whole(call.node)
    return StreamingResponse(_pieces(parts), media_type="application/json", headers=NO_CACHE)


async def _pieces(parts: Iterator[tuple[str, Any]]) -> AsyncIterator[str]:
    comma = "{"
    for name, value in parts:
        yield f"{comma}{json.dumps(name)}:"
        comma = ","
        if isinstance(value, str):
            yield json.dumps(value)
            continue
        async for piece in _entries(value):
            yield piece
    yield "}"


async def _entries(entries: Iterable[Any]) -> AsyncIterator[str]:
    texts: list[str] = []
    comma = "["
    for entry in entries:
        texts.append(json.dumps(entry, separators=(",", ":")))
        if len(texts) >= ENTRIES_PER_PIECE:
            yield comma + ",".join(texts)
            comma = ","
            texts.clear()
            await asyncio.sleep(0)
    if texts:
        yield comma + ",".join(texts) + "]"
    else:
        yield "[]" if comma == "[" else "]"


async def load(call: Call) -> Response:
    """Import definitions."""
    body = await call.body(failed="failed_to_parse_json")
    with call.audit("definitions.import", call.parts.get("vhost", "")):
        await Importer(call.node, call.parts.get("vhost")).run(body)
    return Response(status_code=HTTPStatus.NO_CONTENT)
