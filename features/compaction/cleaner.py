"""A round of compaction: the keys are noted, then each batch is kept, rebuilt or dropped."""

import struct
from collections.abc import Mapping
from operator import gt, le
from typing import cast

from crc32c import crc32c

from features.compaction.cleaned_transactions import CleanedTransactions, Ranges
from features.compaction.key_scan import scan_keys
from features.compaction.noted import NOT_NOTED, NotedBatches
from features.compaction.offset_map import OffsetMap
from features.compaction.rebuilding import (
    DELETE_HORIZON_MASK,
    Codec,
    rebuild,
    without_records,
)
from features.compaction.record_slices import RecordSlice, scan_records
from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    parse_batch_header,
)


class Cleaner:
    """One round of compaction of one partition: ``note`` its new end, ``keep`` all before it.

    ``last_of_producers`` says at which base offset each producer that is still remembered wrote
    last in the partition: that batch stays, if need be without records, for its sequence.
    ``aborted``: the aborted transactions among the batches; none is open there.
    Figures are for who reports.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        codec: Codec,
        *,
        now_unix_ms: int,
        delete_retention_ms: int,
        last_of_producers: Mapping[int, int],
        aborted: Ranges | None = None,
    ) -> None:
        self._transactions = CleanedTransactions(
            aborted or {}, now_unix_ms=now_unix_ms, delete_retention_ms=delete_retention_ms
        )
        self._offsets = offsets
        self._noted = NotedBatches()
        self._codec = codec
        self._now_unix_ms = now_unix_ms
        self._delete_retention_ms = delete_retention_ms
        self._last_of_producers = last_of_producers
        self.end_offset = 0  # what begins here or later is not touched
        self.kept_bytes = 0  # bytes of batches before the end, as they are now
        self.dropped_bytes = 0  # bytes of batches that ``drops`` has named
        self.records_removed = 0
        self.unkeyed_removed = 0
        self.undecodable = 0

    def note(self, batch: Buffer) -> bool:
        """Learn a batch's keys, in order of offsets; False when the map has no room for it.

        After that nothing more is noted, and this round ends before the batch. A map with room
        for ``RECORDS_MAX``, or for as many keys as there are offsets, takes at least one batch.
        """
        header = parse_batch_header(batch)
        is_needed = _is_of_transaction(header) or self._is_last_of_producer(header)
        if header.record_count and not self._is_without_keys(header):
            # A count that contradicts the offsets is that of a batch that cannot be decoded.
            if self._offsets.room < min(header.record_count, header.last_offset_delta + 1):
                return False
            is_needed = not self._note_keys(batch, header) or is_needed
        record_count = 0 if is_needed else header.record_count
        self._noted.add(header.base_offset, record_count, is_needed=is_needed)
        self.end_offset = header.last_offset + 1
        return True

    def _note_keys(self, batch: Buffer, header: BatchHeader) -> bool:
        """Learn the keys; False when nobody can: ``keep`` leaves such a batch, and counts it."""
        if crc32c(memoryview(batch)[ATTRIBUTES_AT : header.size_bytes]) != header.crc:
            return False
        try:
            found = scan_keys(self._records_of(batch, header), header)
        except CorruptBatch:
            return False
        if found.has_unkeyed:
            pairs = zip(found.keys, found.offsets, strict=True)
            keyed = [(key, offset) for key, offset in pairs if key is not None]
            self._offsets.put_all([key for key, _ in keyed], [at for _, at in keyed])
        else:
            self._offsets.put_all(cast("list[bytes]", found.keys), found.offsets)
        return True

    def seal(self) -> None:
        """Nothing more is noted: learn which batches hold nothing that stays. May take 1 s."""
        self._noted.seal(self._offsets.offsets())

    def drops(self, base_offset: int, size_bytes: int) -> bool:
        """Whether nothing of a batch stays, known without it; then ``keep`` is not asked.

        Only after ``seal``. Batches are asked for once each.
        """
        count = self._noted.superseded_count(base_offset)
        if count == NOT_NOTED:
            return False
        self.records_removed += count
        self.dropped_bytes += size_bytes
        return True

    def keep(self, batch: Buffer) -> Buffer | None:
        """Return what is left of a batch (itself when all is), None when nothing is."""
        header = parse_batch_header(batch)
        if header.last_offset >= self.end_offset:
            return batch
        kept = self._keep(batch, header)
        self.kept_bytes += 0 if kept is None else len(kept)
        return kept

    def _keep(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        if header.is_control:
            kept = self._transactions.keep_marker(batch, header)
            return batch if kept is None and header.last_offset + 1 >= self.end_offset else kept
        if header.is_transactional and header.record_count:
            self._transactions.meet(header)
            if self._transactions.is_aborted(header):
                self.records_removed += header.record_count
                return self._without_records(batch, header)
        return self._filter(batch, header)

    def _is_without_keys(self, header: BatchHeader) -> bool:
        """Say whether no record of a batch supersedes another: of a marker, or what was aborted."""
        return header.is_control or (
            header.is_transactional and self._transactions.is_aborted(header)
        )

    def _filter(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        try:
            data = self._records_of(batch, header)
            found = scan_keys(data, header)
            latest = self._offsets.get_all([key or b"" for key in found.keys])
            if not found.has_tombstones and not found.has_unkeyed and found.keys:
                if all(map(le, latest, found.offsets)):
                    return batch
                if all(map(gt, latest, found.offsets)):
                    self.records_removed += len(latest)
                    return self._without_records(batch, header)
            records = scan_records(data, header)
        except CorruptBatch:
            self.undecodable += 1
            return batch
        return self._rebuild(batch, header, data, self._choose(header, records, latest))

    def _choose(
        self, header: BatchHeader, records: list[RecordSlice], latest: list[int]
    ) -> list[RecordSlice]:
        """Return the records that stay. ``latest``: of each record's key."""
        has_horizon = bool(header.attributes & DELETE_HORIZON_MASK)
        is_past = has_horizon and self._now_unix_ms >= header.base_timestamp_unix_ms
        kept: list[RecordSlice] = []
        base_offset = header.base_offset
        for record, latest_offset in zip(records, latest, strict=True):
            _, _, _, _, offset_delta, key, has_value = record
            if key is None:
                self.unkeyed_removed += 1  # from before the topic was compacted
            elif latest_offset <= base_offset + offset_delta and (has_value or not is_past):
                kept.append(record)
        return kept

    def _rebuild(
        self, batch: Buffer, header: BatchHeader, data: bytes, kept: list[RecordSlice]
    ) -> Buffer | None:
        has_horizon = bool(header.attributes & DELETE_HORIZON_MASK)
        removed_count = header.record_count - len(kept)
        if not kept:
            self.records_removed += removed_count
            return self._without_records(batch, header)
        sets_horizon = not has_horizon and not all(has_value for *_, has_value in kept)
        if not removed_count and not sets_horizon:
            return batch
        horizon_unix_ms = self._now_unix_ms + self._delete_retention_ms
        try:
            rebuilt = rebuild(
                header,
                data,
                kept,
                self._codec,
                horizon_unix_ms=horizon_unix_ms if sets_horizon else None,
            )
        except (OverflowError, struct.error):  # timestamps that are about no time at all
            self.undecodable += 1
            return batch
        self.records_removed += removed_count
        return rebuilt

    def _without_records(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Return an empty batch where a sequence or the end of the round is told by it."""
        is_last = header.last_offset + 1 >= self.end_offset
        if not is_last and not self._is_last_of_producer(header):
            return None
        return without_records(header) if header.record_count else batch

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last_offset = self._last_of_producers.get(header.producer_id)
        return header.is_idempotent and last_offset == header.base_offset

    def _records_of(self, batch: Buffer, header: BatchHeader) -> bytes:
        data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
        return self._codec.decompress(header.attributes & COMPRESSION_MASK, data)


def _is_of_transaction(header: BatchHeader) -> bool:
    return header.is_control or header.is_transactional
