"""The partitions of a fetch under way, and their answer."""

from collections.abc import Sequence

from adapters.kafka.codec import TopicRef
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.fetch_codec import FetchedPartition, FetchResult, encode_fetch_response
from gateway.errors import GatewayError
from gateway.model import Octets
from gateway.partition import Partition


class Wanted:
    """One partition of a fetch: where it reads, or why it cannot."""

    __slots__ = ("batches", "bytes_max", "error", "partition", "want")

    def __init__(
        self, want: FetchedPartition, partition: Partition | None, error: GatewayError | None
    ) -> None:
        self.want = want
        self.partition = partition
        self.error = error
        self.batches: Sequence[Octets] = ()
        self.bytes_max = 0


class Room:
    """Bytes that an answer may still take; its first batch may be above them."""

    __slots__ = ("free_bytes", "is_first")

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.is_first = True


def encode_answer(
    version: int, topics: Sequence[tuple[TopicRef, list[Wanted]]]
) -> list[Octets]:
    """Return the body of the response in pieces."""
    results = [(ref, [_result(wanted) for wanted in found]) for ref, found in topics]
    return encode_fetch_response(version, results)


def _result(wanted: Wanted) -> FetchResult:
    partition = wanted.partition
    code = ErrorCode.NONE if wanted.error is None else code_of(wanted.error)
    if partition is None:
        return FetchResult(wanted.want.number, code, -1, -1, ())
    return FetchResult(
        wanted.want.number,
        code,
        partition.high_watermark,
        partition.log_start_offset,
        wanted.batches,
    )
