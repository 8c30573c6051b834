"""Produce: API key 0, versions 3 to 13.

v3   transactional_id; exactly one v2 batch per partition
v5   log_start_offset in the response (KIP-107)
v7   zstd (KIP-110)
v8   error messages in the response (KIP-467)
v9   flexible encoding (KIP-482)
v13  topic ids (KIP-516)

In topics with ``delay.enable`` records with a header ``deliver-at`` in the future are delayed; if
a batch has any, the base offset in the response is -1.

The batches of a request are one atomic append: after a crash all of them exist, or none. A request
of more than ``SLICE_ELEMENTS`` partitions is several appends, one after the other. acks=1 waits as
acks=all does. With acks=0 there is no response, and an error closes the connection. The second
occurrence of a partition in a request is refused, because its sequences cannot be checked.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.produce_codec import (
    ProducedPartition,
    ProducedResult,
    ProduceRequest,
    decode_produce_request,
    encode_produce_response,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.node.large_requests import (
    join_slices,
    topic_slices,
    yield_to_loop,
)
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.delays.split import Split, split
from gateway.errors import (
    GatewayError,
    InvalidRecord,
    InvalidRequest,
    PeerError,
    TopicNotFound,
    Unauthorized,
    UnsupportedCompression,
    as_value,
)
from gateway.futures import set_result_if_pending
from gateway.model import COMPRESSION_MASK
from gateway.partition import Partition
from gateway.records.checks import ZSTD
from gateway.topics.manager import Topic
from gateway.writer import Duplicate, Write

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)
ZSTD_FROM: Final = 7

decode = decode_produce_request

Taken = Write | Duplicate | Split
Outcome = Taken | GatewayError
Topics = Sequence[tuple[TopicRef, Sequence[ProducedPartition]]]
Outcomes = list[tuple[TopicRef, list[tuple[int, Outcome]]]]


class ProduceReply(Protocol):
    """Reply that the connection passes in; call it with the response, None for acks=0.

    ``guard`` runs callbacks of the storage; an exception closes this connection only.
    """

    def __call__(self, body: bytes | None) -> None:
        """Send the response; called once."""

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Call ``work(*args)``; an exception closes the connection."""


def handle(
    request: ProduceRequest, session: Session, version: int, reply: ProduceReply
) -> None:
    """Append the valid batches of the request; respond when they are durable."""
    outcomes: Outcomes = []
    done = partial(reply.guard, _answer, outcomes, version, request.acks, reply)
    _append(session, request.topics, _refusal(request), version, outcomes, (), done)


async def handle_large(
    request: ProduceRequest, session: Session, version: int, reply: ProduceReply
) -> None:
    """Append slices of the request one after the other, each atomically; then respond."""
    refusal = _refusal(request)
    loop = asyncio.get_running_loop()
    seen: set[Partition] = set()
    parts: list[tuple[Outcomes, asyncio.Future[GatewayError | None]]] = []
    for topics in topic_slices(request.topics):
        outcomes: Outcomes = []
        kept: asyncio.Future[GatewayError | None] = loop.create_future()
        parts.append((outcomes, kept))
        _append(
            session,
            topics,
            refusal,
            version,
            outcomes,
            seen,
            partial(set_result_if_pending, kept),
        )
        seen.update(
            outcome.partition
            for _, results in outcomes
            for _, outcome in results
            if not isinstance(outcome, GatewayError)
        )
        await yield_to_loop()
    done = [(outcomes, await kept) for outcomes, kept in parts]
    parts.clear()
    if request.acks == 0:
        for outcomes, failure in done:
            _check_silent(outcomes, failure)
        reply(None)
        return
    reply(
        await session.node.large_request_thread.run(
            _encode_parts, version, request.topics, done
        )
    )


def _append(  # noqa: PLR0913, PLR0917 - a part of a request, and what came before it
    session: Session,
    topics: Topics,
    refusal: GatewayError | None,
    version: int,
    outcomes: Outcomes,
    seen: Collection[Partition],
    done: Callable[[GatewayError | None], None],
) -> None:
    """Append the valid batches of some topics atomically.

    ``outcomes`` receives the outcome of each batch. ``seen``: partitions of earlier slices of the
    request. ``done`` is called when all batches are durable, or there is none to append.
    """
    taken: dict[Partition, Taken] = {}
    for ref, partitions in topics:
        topic = refusal or _topic(session, ref)
        if isinstance(topic, GatewayError):
            outcomes.append((ref, [(number, topic) for number, _ in partitions]))
        else:
            results = [
                (number, _take(session, topic, number, batch, version, seen, taken))
                for number, batch in partitions
            ]
            outcomes.append((ref, results))
    broker = session.node.broker
    writes = [outcome for outcome in taken.values() if isinstance(outcome, Write)]
    splits = [outcome for outcome in taken.values() if isinstance(outcome, Split)]
    if splits:
        writes += [write for one in splits for write in one.writes]
        done = partial(_end_splits, splits, done)
    if writes:
        try:
            broker.append(writes, done)
        except GatewayError as error:
            done(as_value(error))
    elif any(_is_pending(outcome) for outcome in taken.values()):
        broker.after_pending(done)
    else:
        done(None)


def _end_splits(
    splits: list[Split],
    done: Callable[[GatewayError | None], None],
    failure: GatewayError | None,
) -> None:
    """End the splits, so that delayed records are counted even if the connection has ended."""
    for one in splits:
        one.done(failure)
    done(failure)


def _is_pending(outcome: Taken) -> bool:
    return (
        isinstance(outcome, Duplicate) and outcome.end_offset > outcome.partition.high_watermark
    )


def _refusal(request: ProduceRequest) -> GatewayError | None:
    if request.acks not in {-1, 0, 1}:
        return InvalidAcks(f"acks is {request.acks}, not -1, 0 or 1")
    if request.transactional_id is not None:
        return Unauthorized("transactions are not served", resource="transactional_id")
    return None


class InvalidAcks(GatewayError):
    """The request's acks is none of 0, 1 and -1 (all)."""


def _topic(session: Session, ref: TopicRef) -> Topic | GatewayError:
    try:
        topic = topic_for(session, ref, Operation.WRITE)
    except GatewayError as error:
        return as_value(error)
    if topic.is_internal:
        return TopicNotFound(f"{topic.name.name} is the gateway's own")
    return topic


def _take(  # noqa: PLR0913, PLR0917 - a partition's part of the request, and what came before
    session: Session,
    topic: Topic,
    number: int,
    batch: memoryview | None,
    version: int,
    seen: Collection[Partition],
    taken: dict[Partition, Taken],
) -> Outcome:
    """Check one batch and return its outcome; a valid one is added to ``taken``."""
    broker = session.node.broker
    try:
        partition = broker.partition(topic, number)
        if partition in taken or partition in seen:
            return InvalidRequest(f"partition {number} of {topic.name.name} is named twice")
        if batch is None:
            return InvalidRecord("no records")
        outcome: Taken = broker.prepare(partition, batch)
    except GatewayError as error:
        return as_value(error)
    if (
        version < ZSTD_FROM
        and isinstance(outcome, Write)
        and outcome.header.attributes & COMPRESSION_MASK == ZSTD
    ):
        return UnsupportedCompression("zstd needs Produce version 7")
    if isinstance(outcome, Write) and topic.settings.delays:
        try:
            node = session.node
            outcome = split(outcome, node.delays, node.clock.unix_ms()) or outcome
        except GatewayError as error:
            return as_value(error)
    taken[partition] = outcome
    return outcome


def _answer(
    outcomes: Outcomes,
    version: int,
    acks: int,
    reply: ProduceReply,
    failure: GatewayError | None,
) -> None:
    if acks == 0:
        _check_silent(outcomes, failure)
        reply(None)
        return
    reply(encode_produce_response(version, _results(outcomes, failure)))


def _results(
    outcomes: Outcomes, failure: GatewayError | None
) -> list[tuple[TopicRef, list[ProducedResult]]]:
    return [
        (ref, [_result(number, outcome, failure) for number, outcome in results])
        for ref, results in outcomes
    ]


def _encode_parts(
    version: int, topics: Topics, done: list[tuple[Outcomes, GatewayError | None]]
) -> bytes:
    """Encode the response, in a thread; outcomes are freed slice by slice, not all at once."""
    results = []
    for outcomes, failure in done:
        results.append(_results(outcomes, failure))
        outcomes.clear()
    return encode_produce_response(version, join_slices(topics, results))


def _check_silent(outcomes: Outcomes, failure: GatewayError | None) -> None:
    """Raise ``PeerError`` if a request with acks=0 failed: closing is the only error signal."""
    errors = [o for _, results in outcomes for _, o in results if isinstance(o, GatewayError)]
    if failure is not None:
        errors.append(failure)
    if errors:
        msg = f"produce with acks=0 failed: {type(errors[0]).__name__}: {errors[0]}"
        raise PeerError(msg)


def _result(number: int, outcome: Outcome, failure: GatewayError | None) -> ProducedResult:
    if isinstance(outcome, GatewayError):
        return ProducedResult(number, _code(outcome), -1, -1, -1, str(outcome) or None)
    if failure is not None:
        return ProducedResult(number, _code(failure), -1, -1, -1, str(failure) or None)
    partition = outcome.partition
    if isinstance(outcome, Split):
        return ProducedResult(number, ErrorCode.NONE, -1, -1, partition.log_start_offset, None)
    append_time_ms = -1
    if partition.topic.settings.log_append_time and isinstance(outcome, Write):
        append_time_ms = outcome.header.max_timestamp_unix_ms
    return ProducedResult(
        number,
        ErrorCode.NONE,
        outcome.base_offset,
        append_time_ms,
        partition.log_start_offset,
        None,
    )


def _code(error: GatewayError) -> ErrorCode:
    if isinstance(error, InvalidAcks):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return code_of(error)
