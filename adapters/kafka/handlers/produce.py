"""Produce: API key 0, versions 3 to 13.

v3   transactional_id; exactly one v2 batch per partition
v5   log_start_offset in the response (KIP-107)
v7   zstd (KIP-110)
v8   error messages in the response (KIP-467)
v9   flexible encoding (KIP-482)
v13  topic ids (KIP-516)

A request's batches are one atomic append: after a crash all of them are there, or none. acks=1
waits as acks=all does. With acks=0 there is no answer, and an error closes the connection.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from adapters.kafka.codec import TopicRef
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.produce_codec import (
    ProducedResult,
    ProduceRequest,
    decode_produce_request,
    encode_produce_response,
)
from adapters.kafka.session import Session
from adapters.kafka.topic_refs import resolve_topic
from gateway.auth import Operation, ResourceType
from gateway.errors import (
    GatewayError,
    InvalidRecord,
    PeerError,
    TopicNotFound,
    Unauthorized,
    UnsupportedCompression,
)
from gateway.model import COMPRESSION_MASK
from gateway.batch import ZSTD
from gateway.topics import Topic
from gateway.writer import Duplicate, Write

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)
ZSTD_FROM: Final = 7

Reply = Callable[[bytes | None], None]
decode = decode_produce_request

Outcome = Write | Duplicate | GatewayError


def handle(request: ProduceRequest, session: Session, version: int, reply: Reply) -> None:
    """Append what is good of the request, and answer when it is kept."""
    outcomes: list[tuple[TopicRef, list[tuple[int, Outcome]]]] = []
    writes: list[Write] = []
    waits = False
    refusal = _refusal(request)
    for ref, partitions in request.topics:
        topic = refusal or _topic(session, ref)
        results: list[tuple[int, Outcome]] = []
        for index, batch in partitions:
            outcome = (
                topic
                if isinstance(topic, GatewayError)
                else _prepare(session, topic, index, batch, version)
            )
            if isinstance(outcome, Write):
                writes.append(outcome)
            elif isinstance(outcome, Duplicate):
                waits = waits or outcome.end_offset > outcome.partition.high_watermark
            results.append((index, outcome))
        outcomes.append((ref, results))
    done = partial(_answer, outcomes, version, request.acks, reply)
    broker = session.node.broker
    if writes:
        try:
            broker.append(writes, done)
        except GatewayError as error:
            done(error)
    elif waits:
        broker.after_pending(done)
    else:
        done(None)


def _refusal(request: ProduceRequest) -> GatewayError | None:
    if request.acks not in {-1, 0, 1}:
        return InvalidAcks(f"acks is {request.acks}, not -1, 0 or 1")
    if request.transactional_id is not None:
        return Unauthorized("transactions are not served", resource="transactional_id")
    return None


class InvalidAcks(GatewayError):
    """Kafka knows acks of 0, 1 and -1 (all)."""


def _topic(session: Session, ref: TopicRef) -> Topic | GatewayError:
    try:
        topic = resolve_topic(session, ref)
    except GatewayError as error:
        return error
    if not session.allows(Operation.WRITE, ResourceType.TOPIC, topic.name.name):
        return Unauthorized(f"no right to write to {topic.name.name}")
    if topic.is_internal:
        return TopicNotFound(f"{topic.name.name} is the gateway's own")
    return topic


def _prepare(
    session: Session, topic: Topic, index: int, batch: memoryview | None, version: int
) -> Outcome:
    broker = session.node.broker
    try:
        partition = broker.partition(topic, index)
        if batch is None:
            return InvalidRecord("no records")
        outcome = broker.prepare(partition, batch)
    except GatewayError as error:
        return error
    if (
        version < ZSTD_FROM
        and isinstance(outcome, Write)
        and outcome.header.attributes & COMPRESSION_MASK == ZSTD
    ):
        return UnsupportedCompression("zstd needs Produce version 7")
    return outcome


def _answer(
    outcomes: list[tuple[TopicRef, list[tuple[int, Outcome]]]],
    version: int,
    acks: int,
    reply: Reply,
    failure: GatewayError | None,
) -> None:
    if acks == 0:
        _answer_nothing(outcomes, reply, failure)
        return
    reply(
        encode_produce_response(
            version,
            [
                (ref, [_result(index, outcome, failure) for index, outcome in results])
                for ref, results in outcomes
            ],
        )
    )


def _answer_nothing(
    outcomes: list[tuple[TopicRef, list[tuple[int, Outcome]]]],
    reply: Reply,
    failure: GatewayError | None,
) -> None:
    """Without an answer, closing is the only way to tell the producer of an error."""
    errors = [o for _, results in outcomes for _, o in results if isinstance(o, GatewayError)]
    if failure is not None:
        errors.append(failure)
    if errors:
        msg = f"produce with acks=0 failed: {type(errors[0]).__name__}: {errors[0]}"
        raise PeerError(msg)
    reply(None)


def _result(index: int, outcome: Outcome, failure: GatewayError | None) -> ProducedResult:
    if isinstance(outcome, GatewayError):
        return ProducedResult(index, _code(outcome), -1, -1, -1, str(outcome) or None)
    if failure is not None:
        return ProducedResult(index, _code(failure), -1, -1, -1, str(failure) or None)
    partition = outcome.partition
    append_time_ms = -1
    if partition.topic.settings.log_append_time and isinstance(outcome, Write):
        append_time_ms = outcome.header.max_timestamp_unix_ms
    return ProducedResult(
        index,
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
