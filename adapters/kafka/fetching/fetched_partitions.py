"""Partitions of a pending fetch, and their encoded response."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import encode_fetch_response
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.node.fetch_target import FetchTarget
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, as_value
from gateway.model import Buffer, parse_batch_header

if TYPE_CHECKING:
    from gateway.tracing.tracer import Tracer


class ByteAllowance:
    """Bytes that a response may still take; its first batch may exceed them."""

    __slots__ = ("free_bytes", "is_first")

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.is_first = True


def remove_unauthorized(
    session: Session,
    topics: Iterable[tuple[TopicRef, Sequence[FetchTarget]]],
    *,
    since: int,
) -> None:
    """Replace the topics that the session may no longer read by an error.

    ``since``: the authorizer's revision when they were authorized; nothing is checked if it is
    unchanged.
    """
    if session.node.authorizer.revision == since:
        return
    for _, partitions in topics:
        names = {w.partition.topic.name.name for w in partitions if w.partition is not None}
        try:
            for name in names:
                topic_for(session, name, Operation.READ)
        except GatewayError as error:
            for target in partitions:
                target.error, target.partition, target.batches = as_value(error), None, ()


def trace_received(
    tracer: "Tracer", topics: Iterable[tuple[TopicRef, Sequence[FetchTarget]]]
) -> None:
    """Make spans of the sampled messages of a response."""
    for _, partitions in topics:
        for target in partitions:
            if target.partition is not None and target.batches:
                end = parse_batch_header(target.batches[-1]).last_offset + 1
                tracer.received(target.partition, range(target.request.offset, end))


def encode_answer(
    version: int,
    topics: Iterable[tuple[TopicRef, Sequence[FetchTarget]]],
    session_id: int = 0,
    nodes: Sequence[BrokerAddress] = (),
) -> list[Buffer]:
    """Return the body of the response in pieces. ``nodes``: addresses of other leaders."""
    results = [(ref, [target.result() for target in found]) for ref, found in topics]
    return encode_fetch_response(version, results, session_id=session_id, nodes=nodes)
