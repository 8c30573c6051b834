"""Views of a log in a bucket for readers outside the node: the index in SQL, and the objects.

The driver reads the extents of all objects from the database, in two queries. A worker reads the
positions of batches from an object's own footer, not from the index: a small object comes whole,
with its footer, in one GET, so that the rows cost nothing, while one query and some hundreds of
bytes of pickle for each object would all pass the driver.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.metadata.store import TopicRow
from gateway.metadata.topic_rows import load_topics
from gateway.model import PartitionIdentity
from gateway.sql.engines import make_engine, one_line, reading
from pipeline.log.options import S3Place
from pipeline.log.s3_object import ObjectReader, Recent
from pipeline.log.transactions import with_transactions
from pipeline.log.views import Extent, FileGone, PartitionView, found_again
from storage_adapters.formats.damage import Damaged
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.bucket_errors import ObjectMissing
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index, Loaded
from storage_adapters.s3.state import object_key

_TRIES_MAX: Final = 20
_BUCKETS_MAX: Final = 4  # clients of different places that a process keeps


def read_view(place: S3Place) -> dict[int, PartitionView]:
    """Return all partitions by id. All that is committed is durable.

    Errors: ``StorageUnavailable``: the database is away, or has no index of this bucket.
    """
    for _ in range(_TRIES_MAX):
        with closing(_index(place)) as index:
            try:
                loaded = index.load()
            except Damaged as error:
                raise StorageUnavailable(
                    f"the index of {_described(place)}: {error}"
                ) from error
        # Topics after the index: one that was deleted in between is missing as a whole.
        found = _views(place, loaded, _topics(place))
        try:
            return with_transactions(found, partial(open_extents, place))
        except FileGone:
            continue  # merged meanwhile
    raise StorageUnavailable(f"{_described(place)} changes faster than it can be looked at")


def relocate(place: S3Place, extents: Sequence[Extent]) -> list[list[Extent]]:
    """Return the new places of extents whose objects are gone.

    Errors: ``OffsetOutOfRange`` when some were removed, ``StorageUnavailable`` when an object of
    the index is not in the bucket.
    """
    views = read_view(place)
    return [_found(views, extent) for extent in extents]


def _found(views: dict[int, PartitionView], extent: Extent) -> list[Extent]:
    found = found_again(views, extent)
    if any(one.path == extent.path for one in found):
        raise StorageUnavailable(
            f"{extent.path} is not in the bucket, and the index says that it is: was it deleted "
            "by hand, or by a lifecycle rule of the bucket?"
        )
    return found


@contextmanager
def open_extents(
    place: S3Place, path: str, extents: Sequence[Extent]
) -> "Iterator[ObjectReader]":
    """Open an object for extents that are read in this order, or in part.

    Errors, here and as they are read: ``FileGone``, ``StorageUnavailable``.
    """
    key = path.removeprefix(f"s3://{place.bucket}/")
    try:
        recent = _recent(place)
        recent.open(key, extents[0].file_bytes)
        with closing(ObjectReader(recent, path, key, extents)) as reader:
            yield reader
    except ObjectMissing:
        raise FileGone(path) from None


def take_lease(place: S3Place, *, ttl_ms: int) -> str:
    """Take a lease on all objects that are live now; return its id."""
    with closing(_index(place)) as index:
        return index.take_lease("pipeline", ttl_ms=ttl_ms)


def extend_lease(place: S3Place, lease: str, *, ttl_ms: int) -> bool:
    """Extend the lease from now on. False: it had run out."""
    with closing(_index(place)) as index:
        return index.extend_lease(lease, ttl_ms=ttl_ms)


def end_lease(place: S3Place, lease: str) -> None:
    """End the lease."""
    with closing(_index(place)) as index:
        index.end_lease(lease)


def _described(place: S3Place) -> str:
    return f"s3://{place.bucket}/{place.prefix}"


def _index(place: S3Place) -> Index:
    index = Index(place.catalog, clock=SystemClock())
    index.open(create=False)
    return index


def _topics(place: S3Place) -> list[TopicRow]:
    try:
        engine = make_engine(place.catalog, create=False)
        try:
            with reading(engine).begin() as connection:
                return load_topics(connection)
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        raise StorageUnavailable(f"the metadata database: {one_line(error)}") from error


@lru_cache(maxsize=_BUCKETS_MAX)
def bucket_of(place: S3Place) -> Bucket:
    """Return this process's client, since creating one takes longer than most reads."""
    config = S3Config(
        bucket=place.bucket,
        prefix=place.prefix,
        endpoint_url=place.endpoint_url,
        region=place.region,
        profile=place.profile,
        addressing=place.addressing,
    )
    return Bucket(config, SystemClock())


@lru_cache(maxsize=_BUCKETS_MAX)
def _recent(place: S3Place) -> Recent:
    return Recent(bucket_of(place))


def _views(
    place: S3Place, loaded: Loaded, topics: Sequence[TopicRow]
) -> dict[int, PartitionView]:
    extents: dict[int, list[Extent]] = {}
    for stored, parts in loaded.objects:
        key = object_key(place.prefix, stored.number, stored.epoch)
        path = f"s3://{place.bucket}/{key}"
        for partition_id, held in parts:
            extents.setdefault(partition_id, []).append(
                Extent(
                    path,
                    partition_id,
                    held.first,
                    held.end,
                    held.size_bytes,
                    file_bytes=stored.size_bytes,
                    max_timestamp_unix_ms=held.max_timestamp_unix_ms,
                )
            )
    starts = {row.partition_id: row.start for row in loaded.bounds}
    deleted = {row.partition_id for row in loaded.bounds if row.is_deleted}
    views: dict[int, PartitionView] = {}
    for identity in _identities(topics):
        partition_id = identity.partition_id
        if partition_id not in deleted:
            start = starts.get(partition_id, 0)
            found = _from_start(extents.get(partition_id, ()), start)
            end = found[-1].end if found else start
            views[partition_id] = PartitionView(identity, start, end, found)
    return views


def _identities(topics: Sequence[TopicRow]) -> Iterator[PartitionIdentity]:
    for topic in topics:
        for first_number, first_id, length in topic.ranges:
            for place in range(length):
                yield PartitionIdentity(
                    first_id + place, topic.uuid, topic.name, first_number + place
                )


def _from_start(extents: Sequence[Extent], start: int) -> list[Extent]:
    return [
        extent._replace(first=max(extent.first, start))
        for extent in sorted(extents, key=lambda extent: extent.first)
        if extent.end > start
    ]
