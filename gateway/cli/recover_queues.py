"""Queues in the log: the journal has entries of each queue that was ever read."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.errors import RequestError
from gateway.metadata.recovery import QueuePlace, parse_lane_id
from gateway.model import Buffer, PartitionIdentity
from gateway.queues.journal import QUEUES_TOPIC
from gateway.records.codec import iter_records
from storage_adapters.formats.entry import KIND_BATCH
from storage_adapters.segment_log.inspect import (
    PartitionListing,
    inspect_entries,
    inspect_footer,
    inspect_segment,
    inspect_segments,
    read_batch,
    settled_batches,
)
from storage_adapters.segment_log.segments import settled_path
from storage_adapters.segment_log.settled_files import read_manifest


def list_queues(data_dir: Path, listing: PartitionListing) -> list[QueuePlace]:
    """Return the queues that the journal has entries of, also of some that were deleted.

    They are read from the files of a stopped node. Errors: ``StorageUnavailable``, ``OSError``.
    """
    found: set[QueuePlace] = set()
    for partition_id in journal_ids(listing.identities):
        found |= places_in(_batches(data_dir, partition_id))
    return sorted(found)


def journal_ids(identities: Iterable[PartitionIdentity]) -> list[int]:
    """Return the partitions that hold the journal of queues."""
    return [one.partition_id for one in identities if one.topic.name == QUEUES_TOPIC]


def places_in(batches: Iterable[Buffer]) -> set[QueuePlace]:
    """Return the queues that batches of the journal name."""
    return {place for batch in batches for place in _places(batch)}


def _places(batch: Buffer) -> Iterator[QueuePlace]:
    try:
        for record in iter_records(batch):
            place = None if record.key is None else parse_lane_id(record.key)
            if place is not None:
                yield place
    except RequestError:
        return  # what is damaged names no queue; `headgate log verify` says where it is


def _batches(data_dir: Path, partition_id: int) -> Iterator[bytes]:
    """Yield all batches of a partition that are in the files, some of them twice."""
    manifest = read_manifest(data_dir)
    for record in () if manifest is None else manifest.files:
        path = settled_path(data_dir, record.number)
        footer = inspect_footer(inspect_segment(path, record.number))
        for part in footer or ():
            if footer is not None and part.partition_id == partition_id:
                yield from settled_batches(path, footer, part)
    for report in inspect_segments(data_dir):
        footer = inspect_footer(report)
        if footer is not None and all(part.partition_id != partition_id for part in footer):
            continue
        for entry in inspect_entries(report):
            if entry.problem or entry.header is None or entry.header.kind != KIND_BATCH:
                continue
            if any(target == partition_id for target, _ in entry.targets):
                yield read_batch(report, entry)
