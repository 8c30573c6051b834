"""Opening: the bucket's marker, the index, and the take-over from a previous owner."""

import json
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from gateway.clock import Clock
from gateway.errors import StorageUnavailable, TopicNotFound
from gateway.storage import StorageHost
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.log_ranges import log_of
from storage_adapters.s3.bucket import Bucket, KeyTaken
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index, Loaded, Ownership
from storage_adapters.s3.index_owners import LogOwner
from storage_adapters.s3.log_ends import DataPlace, end_log, end_logs, is_held
from storage_adapters.s3.objects import Part
from storage_adapters.s3.state import Catalog, PartitionState
from storage_adapters.s3.tables import SOLE

MARKER: Final = "headgate.json"
FORMAT: Final = 2  # that of new buckets; 1 is read too
MARKER_BYTES_MAX: Final = 4_096


class Opened(NamedTuple):
    """Data at a start. ``look_ups``: the same index over a connection of its own."""

    database: Index
    look_ups: Index
    ownership: Ownership
    catalog: Catalog
    data_uuid: UUID
    is_empty: bool


def open_data(  # noqa: PLR0917 - what an opening works with
    config: S3Config,
    bucket: Bucket,
    host: StorageHost,
    clock: Clock,
    reserve: int,
    is_shared: bool,  # noqa: FBT001
) -> Opened:
    """Open or create the data, as its only writer or one of many. Errors: ``StorageUnavailable``.

    ``is_shared``: other nodes go on, and only earlier starts of this one are fenced.
    """
    bucket.check()
    index, look_ups = [
        Index(host.metadata_url, clock=clock, ms_max=config.database_timeout_ms)
        for _ in range(2)
    ]
    index.open(commits_often=True)
    try:
        look_ups.open(create=False)
        data_uuid, is_new = _data_uuid(config, bucket, index)
        place = DataPlace(bucket, config.prefix, data_uuid)
        if is_shared:
            ownership = index.join(host.node_id, reserve=reserve + 1)
            ownership = end_log(place, index, ownership, clock.unix_ms())
        else:
            ownership = index.take_over(host.node_id, reserve=reserve)
            end_logs(place, index, clock.unix_ms(), when=_is_of_another)
        loaded = index.load()
    except BaseException:
        look_ups.close()
        index.close()
        raise
    is_empty = is_new or not (loaded.objects or loaded.bounds)
    catalog = catalog_of(loaded, log_of(ownership.next_sequence))
    return Opened(index, look_ups, ownership, catalog, data_uuid, is_empty)


def _is_of_another(row: LogOwner) -> bool:
    """Return whether a log's partitions go on in log 0."""
    return row.log != SOLE and is_held(row)


def _data_uuid(config: S3Config, bucket: Bucket, index: Index) -> tuple[UUID, bool]:
    """Return the bucket's data uuid, and whether it was created just now.

    The index must have the same uuid, or be new, too.
    """
    stored = read_marker(config, bucket)
    is_new = stored is None
    if stored is None:
        stored = _begin(config, bucket)
    known = index.data_uuid()
    if known is None and not is_new and _holds_objects(config, bucket):
        raise StorageUnavailable(
            f"bucket {config.bucket!r} holds the data {stored}, but the database has no index of "
            "it: bring the database back, or rebuild the index with `headgate recover-metadata`"
        )
    index.set_data_uuid(stored, config.bucket, config.prefix)
    return stored, is_new


def read_marker(config: S3Config, bucket: Bucket) -> UUID | None:
    """Return the uuid of the data in the bucket, None in an empty bucket.

    Errors: ``StorageUnavailable``, also for a later format.
    """
    key = f"{config.prefix}{MARKER}"
    if bucket.head(key) is None:
        return None
    data, _ = bucket.get_end(key, MARKER_BYTES_MAX)
    try:
        marker = json.loads(data)
        version, data_uuid = int(marker["format"]), UUID(marker["data_uuid"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageUnavailable(
            f"{key} in bucket {config.bucket!r} is not a marker of Headgate's: {error!r}"
        ) from error
    if version > FORMAT:
        raise StorageUnavailable(
            f"bucket {config.bucket!r} has data of format {version}; this is format {FORMAT}"
        )
    return data_uuid


def _begin(config: S3Config, bucket: Bucket) -> UUID:
    data_uuid = uuid4()
    marker = json.dumps({"format": FORMAT, "data_uuid": str(data_uuid)}).encode()
    try:
        bucket.put(f"{config.prefix}{MARKER}", [marker])
    except KeyTaken:  # two nodes create it at once
        found = read_marker(config, bucket)
        if found is None:
            raise
        return found
    return data_uuid


def _holds_objects(config: S3Config, bucket: Bucket) -> bool:
    """Return whether the bucket has any object. Called only without an index, never for a read."""
    return next(bucket.list(f"{config.prefix}objects/"), None) is not None


def catalog_of(loaded: Loaded, log: int = SOLE) -> Catalog:
    """Build the catalog of partitions with extents from the index. ``log``: the node's own."""
    catalog = Catalog(log)
    for row in loaded.bounds:
        state = catalog.partition(row.partition_id)
        state.start = state.end = row.start
        state.below_bytes, state.is_deleted = row.below_bytes, row.is_deleted
    for stored, parts in loaded.objects:
        catalog.objects[stored.number] = stored
        for partition_id, extent in parts:
            catalog.partition(partition_id).extents.append(extent)
    for state in catalog.partitions.values():
        _settle(state)
    return catalog


def _settle(state: PartitionState) -> None:
    """Sort a partition's extents, and drop those below its start."""
    if state.is_deleted:
        state.extents = []
        return
    state.extents = sorted(extent for extent in state.extents if extent.end > state.start)
    # It may belong to an object that was merged right before a stop: bound it by the current size.
    first_bytes = state.extents[0].size_bytes if state.extents else 0
    state.below_bytes = min(state.below_bytes, first_bytes)
    state.end = max(state.start, state.committed_end)


def introduce(catalog: Catalog, partition_id: int, host: StorageHost) -> Part:
    """Return a partition's footer part; for a deleted one, only the deletion."""
    state = catalog.partitions.get(partition_id)
    if state is None:  # deleted long ago, and forgotten
        return Part(0, 0, is_deleted=True, introduction=None)
    start, end = state.start, state.end
    if state.is_deleted:
        return Part(start, end, is_deleted=True, introduction=None)
    try:
        identity = host.identify(partition_id)
    except TopicNotFound:  # its deletion has not arrived here yet
        return Part(start, end, is_deleted=True, introduction=None)
    introduction = encode_introduction(Introduction(identity, start, end))
    return Part(start, end, is_deleted=False, introduction=introduction)
