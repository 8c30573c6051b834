"""Transactions in a round of compaction: data of aborted ones goes, and markers after their data.

The rules are those of Kafka's ``CleanedTransactionMetadata``. A marker stays as long as the round
has met a batch of its transaction, and ``delete_retention_ms`` more, so that readers who are behind
see where the transaction ended. That deadline is written into it as into tombstones (KIP-534).

The marker of an aborted transaction stays as long as the partition remembers the transaction:
a Fetch response names it then, and clients skip all of its producer's batches up to the marker.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter

from features.compaction.rebuilding import DELETE_HORIZON_MASK, with_horizon
from gateway.model import BatchHeader, Buffer

Ranges = Mapping[int, Sequence[tuple[int, int]]]
"""First and last offsets of aborted transactions, by producer id; those of one are ascending."""

_BY_LAST = itemgetter(1)


class CleanedTransactions:
    """Transactions of the batches of one pass, which come in order of offset."""

    __slots__ = ("_aborted", "_horizon_unix_ms", "_met", "_now_unix_ms")

    def __init__(self, aborted: Ranges, *, now_unix_ms: int, delete_retention_ms: int) -> None:
        self._aborted = aborted
        self._now_unix_ms = now_unix_ms
        self._horizon_unix_ms = now_unix_ms + delete_retention_ms
        self._met: set[int] = set()  # producers of batches whose marker has not come

    def meet(self, header: BatchHeader) -> None:
        """Take note of a batch with records, so that the marker of its transaction stays."""
        self._met.add(header.producer_id)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Say whether a transactional batch belongs to an aborted transaction."""
        found = self._range_at(header)
        return found is not None and found[0] <= header.base_offset

    def keep_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Return a marker, with a deadline once its data has gone; None behind the deadline."""
        if header.producer_id in self._met:
            self._met.discard(header.producer_id)
            return batch
        if not header.attributes & DELETE_HORIZON_MASK:
            return with_horizon(batch, header, self._horizon_unix_ms)
        if self._now_unix_ms < header.base_timestamp_unix_ms or self._is_remembered(header):
            return batch
        return None

    def _is_remembered(self, marker: BatchHeader) -> bool:
        """Whether a marker ends one of the aborted transactions of this pass."""
        found = self._range_at(marker)
        return found is not None and found[1] == marker.base_offset

    def _range_at(self, header: BatchHeader) -> tuple[int, int] | None:
        """Return the first range of a batch's producer that ends at its offset or later."""
        ranges = self._aborted.get(header.producer_id, ())
        at = bisect_left(ranges, header.base_offset, key=_BY_LAST)
        return ranges[at] if at < len(ranges) else None
