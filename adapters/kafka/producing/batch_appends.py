"""Appends of the batches of a Produce request: checks, one atomic append, and outcomes."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.produce_codec import ProducedPartition
from adapters.kafka.producing.producer_transaction import ProducerTransaction
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import (
    GatewayError,
    InvalidRecord,
    InvalidRequest,
    TopicNotFound,
    UnsupportedCompression,
    as_value,
)
from gateway.model import COMPRESSION_MASK, HEADER_BYTES, parse_batch_header
from gateway.partition import Partition
from gateway.records.checks import ZSTD
from gateway.topics.manager import Topic
from gateway.writer import Duplicate, Write

ZSTD_FROM: Final = 7

Taken = Write | Duplicate
Outcome = Taken | GatewayError
Topics = Sequence[tuple[TopicRef, Sequence[ProducedPartition]]]
Outcomes = list[tuple[TopicRef, list[tuple[int, Outcome]]]]
"""Outcome of each batch, by partition and topic, in the order of the request."""


def append_batches(  # noqa: PLR0913, PLR0917 - a part of a request, and what came before it
    session: Session,
    topics: Topics,
    transaction: ProducerTransaction | GatewayError | None,
    version: int,
    outcomes: Outcomes,
    seen: Collection[Partition],
    done: Callable[[GatewayError | None], None],
) -> None:
    """Append the valid batches of some topics atomically.

    ``outcomes`` receives the outcome of each batch. ``transaction``: that of the request, or the
    error that refuses it. ``seen``: partitions of earlier slices of the
    request. ``done`` is called when all batches are durable, or there is none to append.
    """
    taken: dict[Partition, Taken] = {}
    refusal = None
    if isinstance(transaction, GatewayError):
        refusal, transaction = transaction, None
    for ref, partitions in topics:
        topic = refusal or _topic(session, ref)
        if isinstance(topic, GatewayError):
            outcomes.append((ref, [(number, topic) for number, _ in partitions]))
        else:
            results = [
                (
                    number,
                    _check_batch(
                        session, topic, number, batch, version, transaction, seen, taken
                    ),
                )
                for number, batch in partitions
            ]
            outcomes.append((ref, results))
    broker = session.node.broker
    writes = [outcome for outcome in taken.values() if isinstance(outcome, Write)]
    if writes:
        try:
            if transaction is not None:
                transaction.begin(writes)
            broker.append(writes, done)
        except GatewayError as error:
            done(as_value(error))
    elif any(_is_pending(outcome) for outcome in taken.values()):
        broker.after_pending(done)
    else:
        done(None)


async def join_transaction(
    session: Session, topics: Topics, transaction: ProducerTransaction
) -> ProducerTransaction | GatewayError:
    """Let the partitions of some topics join a transaction that another node coordinates.

    Return it, or the error that refuses it, for ``append_batches`` in the same turn of the loop.
    """
    batches = []
    for ref, partitions in topics:
        topic = _topic(session, ref)
        for number, batch in partitions:
            if isinstance(topic, GatewayError) or batch is None or len(batch) < HEADER_BYTES:
                continue  # it is refused by itself
            with suppress(GatewayError):
                partition = session.node.broker.partition(topic, number)
                batches.append((partition, parse_batch_header(batch)))
    try:
        await transaction.join(batches)
    except GatewayError as error:
        return as_value(error)
    return transaction


def _is_pending(outcome: Taken) -> bool:
    return (
        isinstance(outcome, Duplicate) and outcome.end_offset > outcome.partition.high_watermark
    )


def _topic(session: Session, ref: TopicRef) -> Topic | GatewayError:
    try:
        topic = topic_for(session, ref, Operation.WRITE)
    except GatewayError as error:
        return as_value(error)
    if topic.is_internal:
        return TopicNotFound(f"{topic.name.name} is the gateway's own")
    return topic


def _check_batch(  # noqa: PLR0913, PLR0917 - a partition's part of the request, and what came before
    session: Session,
    topic: Topic,
    number: int,
    batch: memoryview | None,
    version: int,
    transaction: ProducerTransaction | None,
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
        outcome: Taken
        if transaction is None:
            outcome = broker.prepare(partition, batch)
        else:
            outcome = broker.prepare(partition, batch, transaction_version=transaction.version)
            if isinstance(outcome, Write) and outcome.header.is_transactional:
                transaction.check(outcome)
    except GatewayError as error:
        return as_value(error)
    if (
        version < ZSTD_FROM
        and isinstance(outcome, Write)
        and outcome.header.attributes & COMPRESSION_MASK == ZSTD
    ):
        return UnsupportedCompression("zstd needs Produce version 7")
    taken[partition] = outcome
    return outcome
