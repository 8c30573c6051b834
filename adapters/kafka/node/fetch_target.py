"""One partition of a fetch."""

from collections.abc import Sequence

from adapters.kafka.codecs.current_leader import current_leader
from adapters.kafka.codecs.fetch_codec import FetchPartition, FetchResult
from adapters.kafka.errors import ErrorCode, code_of
from features.open_transactions import AbortedTransaction
from gateway.errors import GatewayError
from gateway.model import Buffer, unpack_batch_header
from gateway.partition import Partition


class FetchTarget:
    """One partition of a pending fetch: its read position, its batches or its error."""

    __slots__ = ("aborted", "batches", "bytes_max", "error", "partition", "request")

    def __init__(
        self, request: FetchPartition, partition: Partition | None, error: GatewayError | None
    ) -> None:
        self.request = request
        self.partition = partition
        self.error = error
        self.batches: Sequence[Buffer] = ()
        self.bytes_max = 0
        self.aborted: Sequence[AbortedTransaction] | None = None

    def reset(self, *, is_committed: bool) -> None:
        """Drop what was read. ``is_committed``: of the next read."""
        self.batches = ()
        self.aborted = () if is_committed else None

    def end(self, *, is_committed: bool) -> int:
        """Return the offset at which a read by that isolation level ends."""
        partition = self.partition
        assert partition is not None
        return partition.stable_end if is_committed else partition.high_watermark

    def find_aborted(self) -> None:
        """Find the aborted transactions whose batches or markers may be among what was read."""
        transactions = None if self.partition is None else self.partition.transactions
        if self.batches and transactions is not None and transactions.aborted:
            end = unpack_batch_header(self.batches[-1]).last_offset + 1
            self.aborted = transactions.aborted.overlapping(self.request.offset, end)

    def result(self) -> FetchResult:
        """Return the partition's result as it is now."""
        partition = self.partition
        code = ErrorCode.NONE if self.error is None else code_of(self.error)
        leader = current_leader(self.error)
        if partition is None:
            return FetchResult(self.request.number, code, -1, -1, -1, (), leader)
        return FetchResult(
            self.request.number,
            code,
            partition.high_watermark,
            partition.stable_end,
            partition.log_start_offset,
            self.batches,
            leader,
            self.aborted,
        )
