"""Partitions of a pending fetch, and their encoded response."""

from collections.abc import Sequence

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import (
    FetchPartition,
    FetchResult,
    encode_fetch_response,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, as_value
from gateway.model import Buffer
from gateway.partition import Partition


class FetchTarget:
    """One partition of a pending fetch: its read position, its batches or its error."""

    __slots__ = ("batches", "bytes_max", "error", "partition", "request")

    def __init__(
        self, request: FetchPartition, partition: Partition | None, error: GatewayError | None
    ) -> None:
        self.request = request
        self.partition = partition
        self.error = error
        self.batches: Sequence[Buffer] = ()
        self.bytes_max = 0


class ByteAllowance:
    """Bytes that a response may still take; its first batch may exceed them."""

    __slots__ = ("free_bytes", "is_first")

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.is_first = True


def remove_unauthorized(
    session: Session, topics: Sequence[tuple[TopicRef, list[FetchTarget]]], *, since: int
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


def encode_answer(
    version: int, topics: Sequence[tuple[TopicRef, list[FetchTarget]]]
) -> list[Buffer]:
    """Return the body of the response in pieces."""
    results = [(ref, [_result(target) for target in found]) for ref, found in topics]
    return encode_fetch_response(version, results)


def _result(target: FetchTarget) -> FetchResult:
    partition = target.partition
    code = ErrorCode.NONE if target.error is None else code_of(target.error)
    if partition is None:
        return FetchResult(target.request.number, code, -1, -1, ())
    return FetchResult(
        target.request.number,
        code,
        partition.high_watermark,
        partition.log_start_offset,
        target.batches,
    )
