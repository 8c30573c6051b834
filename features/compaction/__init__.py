"""Compaction: of each key the latest record stays, and where it stays nothing changes.

Two passes over a partition, batch by batch: ``note`` learns which offset is a key's latest,
``keep`` rebuilds each batch without the records that a later one supersedes; ``drops`` names
batches of which nothing stays, so that nobody need read them a second time. Offsets, order,
timestamps, headers and the batch's compression stay; a batch keeps its first and last offset,
its producer and its first sequence, so that holes are all that readers can see.

A record without a value (a tombstone) removes its key: it stays for ``delete_retention_ms``
after the pass that first kept it, so that readers who are behind see it. That deadline is
written into its batch (KIP-534): bit 6 of the attributes, the deadline as base timestamp.

The rules are those of Kafka's ``Cleaner`` and ``MemoryRecords.filterTo``. Codecs are handed in.
"""

from features.compaction.cleaner import Cleaner
from features.compaction.key_scan import Scanned, scan_keys
from features.compaction.offset_map import NOT_THERE, OffsetMap, bytes_for
from features.compaction.rebuilding import DELETE_HORIZON_MASK, Codec
from features.compaction.record_slices import RECORDS_MAX

__all__ = [
    "DELETE_HORIZON_MASK",
    "NOT_THERE",
    "RECORDS_MAX",
    "Cleaner",
    "Codec",
    "OffsetMap",
    "Scanned",
    "bytes_for",
    "scan_keys",
]
