"""Ends of logs: an empty log object at the end of a log that is to be continued elsewhere.

A writer that dies can leave objects in the bucket that were never committed. The next object of its
log, of a later epoch, shows a recovery that they do not count (``recovery_plan``). When the next
appends to its partitions are in another log, that object is an empty one.
"""

from array import array
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from storage_adapters.formats.log_ranges import first_sequence, log_of
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.change import Change, NewObject
from storage_adapters.s3.index import Index, Ownership
from storage_adapters.s3.index_owners import LogOwner
from storage_adapters.s3.objects import Appends, ObjectHeader, build_log_object
from storage_adapters.s3.state import KIND_LOG, StoredObject, object_key
from storage_adapters.s3.tables import NOBODY


class DataPlace(NamedTuple):
    """A bucket's data."""

    bucket: Bucket
    prefix: str
    data_uuid: UUID


def end_logs(
    place: DataPlace, index: Index, unix_ms: int, *, when: Callable[[LogOwner], bool]
) -> None:
    """Fence the writers of some logs, and end these; then other nodes may have their partitions.

    Repeat it after an error (``StorageUnavailable``). It waits for bucket and database.
    """
    for row in index.writers():
        if when(row):
            claimed = index.fence(row.log)
            end_log(place, index, claimed, unix_ms)
            index.leave(claimed.epoch)


def is_held(row: LogOwner) -> bool:
    """Return whether a node may append to a log, or could until it was fenced just now."""
    return row.node_id != NOBODY


def end_log(place: DataPlace, index: Index, claimed: Ownership, unix_ms: int) -> Ownership:
    """Put and commit the end of a claimed log; return the claim without the number it took.

    A log that has nothing needs no end.
    """
    number, *others = claimed.reserved
    at = claimed.next_sequence
    if at == first_sequence(log_of(at)):
        return claimed
    header = ObjectHeader(place.data_uuid, number, claimed.epoch, unix_ms)
    built = build_log_object(header, Appends([], frozenset(), at), {})
    etag = place.bucket.put(object_key(place.prefix, number, claimed.epoch), built.body)
    stored = StoredObject(
        number, KIND_LOG, claimed.epoch, at, at, built.size_bytes, etag, unix_ms, frozenset()
    )
    new = NewObject(stored, [], pack_rows(array("q")))
    index.commit(claimed.epoch, Change(added=(new,)))
    return claimed._replace(reserved=others)
