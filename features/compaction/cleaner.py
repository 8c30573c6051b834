"""A round of compaction: the keys are noted, then each batch is kept, rebuilt or dropped."""

import struct
from collections.abc import Mapping

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
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchHeader,
    Octets,
    parse_batch_header,
)


class Cleaner:
    """One round of compaction of one partition: ``note`` its new end, ``keep`` all before it.

    ``last_of_producers`` says at which base offset each producer that is still remembered wrote
    last in the partition: that batch stays, if need be without records, for its sequence.
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
    ) -> None:
        self._offsets = offsets
        self._codec = codec
        self._now_unix_ms = now_unix_ms
        self._delete_retention_ms = delete_retention_ms
        self._last_of_producers = last_of_producers
        self.end_offset = 0  # what begins here or later is not touched
        self.kept_bytes = 0  # octets of batches before the end, as they are now
        self.records_removed = 0
        self.unkeyed_removed = 0
        self.undecodable = 0

    def note(self, batch: Octets) -> bool:
        """Learn a batch's keys, in order of offsets; False when the map has no room for it.

        After that nothing more is noted, and this round ends before the batch. A map with room
        for ``RECORDS_MAX``, or for as many keys as there are offsets, takes at least one batch.
        """
        header = parse_batch_header(batch)
        if not _is_opaque(header) and header.record_count:
            # A count that contradicts the offsets is that of a batch that cannot be decoded.
            if self._offsets.room < min(header.record_count, header.last_offset_delta + 1):
                return False
            try:
                records = scan_records(self._records_of(batch, header), header)
            except CorruptBatch:
                records = []  # ``keep`` leaves such a batch as it is, and counts it
            put = self._offsets.put
            base_offset = header.base_offset
            for _, _, _, _, offset_delta, key, _ in records:
                if key is not None:
                    put(key, base_offset + offset_delta)
        self.end_offset = header.last_offset + 1
        return True

    def keep(self, batch: Octets) -> Octets | None:
        """Return what is left of a batch (itself when all is), None when nothing is."""
        header = parse_batch_header(batch)
        if header.last_offset >= self.end_offset:
            return batch
        kept = batch if _is_opaque(header) else self._filter(batch, header)
        self.kept_bytes += 0 if kept is None else len(kept)
        return kept

    def _filter(self, batch: Octets, header: BatchHeader) -> Octets | None:
        try:
            data = self._records_of(batch, header)
            records = scan_records(data, header)
        except CorruptBatch:
            self.undecodable += 1
            return batch
        has_horizon = bool(header.attributes & DELETE_HORIZON_MASK)
        is_past = has_horizon and self._now_unix_ms >= header.base_timestamp_unix_ms
        kept: list[RecordSlice] = []
        latest_of, base_offset = self._offsets.get, header.base_offset
        for record in records:
            _, _, _, _, offset_delta, key, has_value = record
            if key is None:
                self.unkeyed_removed += 1  # from before the topic was compacted
            elif latest_of(key) <= base_offset + offset_delta and (has_value or not is_past):
                kept.append(record)
        if not kept:
            self.records_removed += len(records)
            return self._without_records(batch, header)
        sets_horizon = not has_horizon and not all(has_value for *_, has_value in kept)
        if len(kept) == len(records) and not sets_horizon:
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
        self.records_removed += len(records) - len(kept)
        return rebuilt

    def _without_records(self, batch: Octets, header: BatchHeader) -> Octets | None:
        """Return an empty batch where a sequence or the end of the round is told by it."""
        is_last = self._last_of_producers.get(header.producer_id) == header.base_offset
        if not (header.is_idempotent and is_last) and header.last_offset + 1 < self.end_offset:
            return None
        return without_records(header) if header.record_count else batch

    def _records_of(self, batch: Octets, header: BatchHeader) -> bytes:
        data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
        return self._codec.decompress(header.attributes & COMPRESSION_MASK, data)


def _is_opaque(header: BatchHeader) -> bool:
    """Markers, and records whose transaction might be an aborted one, are left alone."""
    return header.is_control or header.is_transactional
