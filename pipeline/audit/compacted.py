"""Compacted partitions, which may have holes, by the log and the node's metadata."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import GatewayError, OffsetOutOfRange, StorageUnavailable
from gateway.metadata.schema import TOPIC_CONFIGS
from gateway.model import Record
from gateway.records.codec import iter_records
from gateway.sql.engines import make_engine, reading
from pipeline.log.access import find_again, open_extents
from pipeline.log.options import Options
from pipeline.log.views import FileGone, PartitionView

_COMPACTION_TOPIC: Final = (
    "__compaction"  # key: partition id; value: the offset up to which it is clean
)
_PARTITION_ID: Final = struct.Struct(">I")
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


def compacted_partitions(
    views: Mapping[int, PartitionView], options: Options, metadata_url: str | None
) -> frozenset[int]:
    """Return the ids of partitions that were compacted, or whose topic's policy compacts.

    The node stores in an internal topic the offset up to which a partition is clean after a round;
    the policy counts too, since a round may be under way. ``metadata_url`` None: without it.
    """
    found = {
        _PARTITION_ID.unpack(record.key)[0]
        for view in views.values()
        if view.identity.topic.name == _COMPACTION_TOPIC
        for record in records_of(view, options)
        if record.key is not None and len(record.key) == _PARTITION_ID.size
    }
    uuids = set() if metadata_url is None else _compacted_topics(metadata_url)
    found |= {one for one, view in views.items() if view.identity.topic_uuid in uuids}
    return frozenset(found)


def records_of(view: PartitionView, options: Options) -> Iterator[Record]:
    """Yield all records of an internal topic's partition, one by one.

    Unreadable batches are skipped. Records of a file that is removed meanwhile may come twice, in
    order.
    """
    waiting = list(view.extents)
    while waiting:
        extent = waiting.pop(0)
        try:
            with open_extents(options, extent.path, [extent]) as reader:
                for _, data in reader.batches(extent):
                    with suppress(GatewayError):
                        yield from iter_records(data)
        except FileGone:
            with suppress(OffsetOutOfRange):  # retention removed it first
                waiting = [*find_again(options, extent), *waiting]


def _compacted_topics(url: str) -> set[object]:
    """Return the uuids of topics whose policy compacts; none without the database."""
    query = select(TOPIC_CONFIGS.c.topic_uuid, TOPIC_CONFIGS.c.value).where(
        TOPIC_CONFIGS.c.name == _POLICY
    )
    try:
        engine = reading(make_engine(url, create=False))
        with engine.begin() as connection:
            found = {uuid for uuid, value in connection.execute(query) if _COMPACT in value}
        engine.dispose()
    except (SQLAlchemyError, StorageUnavailable, OSError):
        return set()
    return found
