"""One partition of a fetch."""

from collections.abc import Sequence

from adapters.kafka.codecs.current_leader import current_leader
from adapters.kafka.codecs.fetch_codec import FetchPartition, FetchResult
from adapters.kafka.errors import ErrorCode, code_of
from gateway.errors import GatewayError
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
        )
