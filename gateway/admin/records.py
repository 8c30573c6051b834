"""REST for records: append some, and follow a topic as it grows.

``POST /v1/topics/<name>/records`` appends one, ``.../record-batch`` up to ``BATCH_RECORDS_MAX`` in
one append; ``POST /v1/topics/<name>/follow`` returns what came since the positions of the answer
before. To read what is there, see ``gateway.admin.find``.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.find import SearchTerms, match_view, query_of
from gateway.admin.requests import changes, check_may, read_body, topic_name
from gateway.admin.state import AdminState
from gateway.auth.audit import topic_text
from gateway.auth.ports import Operation
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest, PolicyViolation
from gateway.futures import await_done
from gateway.kernel import Kernel
from gateway.record_search import RecordSearch, SearchPosition
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.topics.manager import Topic

FOLLOWED_MAX: Final = 256  # partitions; of a wider topic, the first ones
FOLLOWED_RECORDS_MAX: Final = 200  # of one answer
WAIT_MS_MAX: Final = 20_000  # of one call, for the first record
BATCH_RECORDS_MAX: Final = 1_000


class HeaderBody(FrozenConfig):
    """Header of a new record; without a value it is null."""

    name: str
    value: str | None = None
    value_base64: str | None = None


class NewRecord(FrozenConfig):
    """Body of ``POST /v1/topics/<name>/records``; without a value it is a tombstone."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: tuple[HeaderBody, ...] = Field(default=(), max_length=100)
    partition: int | None = Field(default=None, ge=0)


class NewRecords(FrozenConfig):
    """Body of ``POST /v1/topics/<name>/record-batch``."""

    records: tuple[NewRecord, ...] = Field(min_length=1, max_length=BATCH_RECORDS_MAX)


class Follow(SearchTerms):
    """Body of ``POST /v1/topics/<name>/follow``; without ``positions`` it begins at the end.

    ``wait_ms``: for a first record, if there is none.
    """

    positions: dict[int, int] = Field(default_factory=dict, max_length=FOLLOWED_MAX)
    partition: int | None = Field(default=None, ge=0)
    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


def routes(state: AdminState) -> list[Route]:
    """Return the routes."""

    async def append(request: Request) -> Response:
        topic = _writable(state.running(), request)
        body = await read_body(request, NewRecord)
        (appended,) = await _append_all(state.running(), request, topic, [body])
        return JSONResponse(appended, 201)

    async def append_batch(request: Request) -> Response:
        topic = _writable(state.running(), request)
        body = await read_body(request, NewRecords)
        appended = await _append_all(state.running(), request, topic, body.records)
        return JSONResponse({"records": appended}, 201)

    async def follow(request: Request) -> Response:
        kernel, name = state.running(), topic_name(request)
        topic = kernel.topics.get(name)
        body = await read_body(request, Follow)
        check_may(kernel, request, Operation.READ, name)
        found = await _follow(kernel, topic, body)
        if body.wait_ms and body.positions and not found["matches"]:
            await _await_more(kernel, topic, found["positions"], body.wait_ms)
            found = await _follow(kernel, topic, body)
        return JSONResponse(found)

    return [
        Route("/topics/{topic}/records", append, methods=["POST"]),
        Route("/topics/{topic}/record-batch", append_batch, methods=["POST"]),
        Route("/topics/{topic}/follow", follow, methods=["POST"]),
    ]


def _writable(kernel: Kernel, request: Request) -> Topic:
    """Return the topic that the path names. Errors: ``Unauthorized``, ``PolicyViolation``."""
    name = topic_name(request)
    topic = kernel.topics.get(name)
    check_may(kernel, request, Operation.WRITE, name)
    if topic.is_internal:
        raise PolicyViolation(f"{name.name} is the node's own topic")
    return topic


async def _append_all(
    kernel: Kernel, request: Request, topic: Topic, bodies: Sequence[NewRecord]
) -> list[dict[str, int]]:
    """Append records in one turn of the loop, which is one append."""
    with changes(kernel, request, "record.append", topic_text(topic.name)):
        return await asyncio.gather(*(_append(kernel, topic, body) for body in bodies))


async def _await_more(
    kernel: Kernel, topic: Topic, positions: Mapping[str, int], wait_ms: int
) -> None:
    """Return once a partition has more than was read, or the time is over."""
    partitions = [kernel.broker.partition(topic, int(number)) for number in positions]
    read = positions.values()
    if any(one.stable_end > at for one, at in zip(partitions, read, strict=True)):
        return
    ready = asyncio.Event()
    waiter = kernel.broker.wait_readable(partitions, bytes_min=1, on_ready=ready.set)
    try:
        async with asyncio.timeout(wait_ms / 1_000):
            await ready.wait()
    except TimeoutError:
        pass
    finally:
        waiter.cancel()


async def _append(kernel: Kernel, topic: Topic, body: NewRecord) -> dict[str, int]:
    key = _bytes("key", body.key, body.key_base64)
    value = _bytes("value", body.value, body.value_base64)
    headers = [
        (one.name, _bytes(one.name, one.value, one.value_base64)) for one in body.headers
    ]
    number = body.partition
    if number is None:
        queue, count = kernel.queues.find(topic.name), len(topic.partition_ids)
        if queue is not None:
            number = queue.partition_for(key).number
        else:
            number = 0 if key is None else partition_for_key(key, count)
    partition = kernel.broker.partition(topic, number)
    run = RecordRun(key, (value,), encode_headers(tuple(headers)), kernel.clock.unix_ms())
    coalescer = kernel.queues.coalescer
    await await_done(lambda on_done: coalescer.add(partition, run, on_done))
    return {"partition": number, "offset": run.base_offset}


async def _follow(kernel: Kernel, topic: Topic, body: Follow) -> dict[str, Any]:
    """Return what came since, and the positions to go on at; a bounded part if it is much."""
    search, query = RecordSearch(kernel.broker), query_of(body, browses=True)
    numbers = range(min(len(topic.partition_ids), FOLLOWED_MAX))
    matches: list[dict[str, Any]] = []
    positions, undecodable = {}, 0
    for number in numbers if body.partition is None else [body.partition]:
        if not kernel.broker.owns(topic, number):
            continue
        partition = kernel.broker.partition(topic, number)
        end = partition.stable_end
        at = positions[number] = body.positions.get(number, end)
        left = FOLLOWED_RECORDS_MAX - len(matches)
        if at >= end or left <= 0:
            continue
        # It searches up to the same end: nothing is awaited before it has looked at that.
        step = await search.step(
            topic, query, start=SearchPosition(number, at), only_partition=True, limit=left
        )
        positions[number] = end if step.next is None else step.next.offset
        matches += map(match_view, step.matches)
        undecodable += step.undecodable_count
    return {
        "matches": matches,
        "positions": {str(number): offset for number, offset in positions.items()},
        "undecodable_count": undecodable,
        "is_whole": body.partition is not None or len(topic.partition_ids) <= FOLLOWED_MAX,
    }


def _bytes(name: str, text: str | None, encoded: str | None) -> bytes | None:
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"{name}_base64: {error}") from error
