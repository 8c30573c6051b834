"""Topics, partitions, configs and addresses in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, text
from sqlalchemy.exc import IntegrityError

from gateway.errors import Overloaded, TopicExists, TopicNotFound
from gateway.metadata.exchange_rows import add_binding, load_bindings
from gateway.metadata.queue_rows import load_queues, put_queue
from gateway.metadata.schema import (
    ADDRESSES,
    COUNTERS,
    DELETED_PARTITIONS,
    PARTITION_RANGES,
    TOPIC_CONFIGS,
    TOPICS,
)
from gateway.metadata.store import (
    PARTITION_ID_MAX,
    PARTITION_IDS,
    DeletedRange,
    PartitionRange,
    ProtocolAddress,
    TopicRow,
)
from gateway.model import TopicName

_RESERVE: Final = text(
    "INSERT INTO counters (name, next_value) VALUES (:name, :end) ON CONFLICT (name) "
    "DO UPDATE SET next_value = counters.next_value + :count RETURNING next_value"
)


def reserve_ids(connection: Connection, counter: str, count: int) -> int:
    """Reserve ``count`` ids and return the first; ids begin at 1.

    The counter's row stays locked until the transaction ends.
    """
    assert count > 0
    first = {"name": counter, "end": 1 + count, "count": count}
    return int(connection.execute(_RESERVE, first).scalar_one()) - count


def load_topics(
    connection: Connection, uuids: Collection[UUID] | None = None
) -> list[TopicRow]:
    """Return all topics, or those of ``uuids``, with partitions and configs, in no order."""
    topics, parts = select(TOPICS), select(PARTITION_RANGES)
    overrides = select(TOPIC_CONFIGS)
    if uuids is not None:
        topics = topics.where(TOPICS.c.uuid.in_(uuids))
        parts = parts.where(PARTITION_RANGES.c.topic_uuid.in_(uuids))
        overrides = overrides.where(TOPIC_CONFIGS.c.topic_uuid.in_(uuids))
    ranges: defaultdict[UUID, list[PartitionRange]] = defaultdict(list)
    for row in connection.execute(parts.order_by(PARTITION_RANGES.c.first_number)):
        ranges[row.topic_uuid].append(
            PartitionRange(row.first_number, row.first_partition_id, row.length)
        )
    configs: defaultdict[UUID, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(overrides):
        configs[row.topic_uuid][row.name] = row.value
    return [
        TopicRow(
            row.uuid,
            TopicName(row.namespace, row.name),
            row.is_internal,
            row.created_unix_ms,
            tuple(ranges[row.uuid]),
            dict(configs.get(row.uuid, {})),
        )
        for row in connection.execute(topics)
    ]


def create_topic(connection: Connection, row: TopicRow, partitions: int) -> TopicRow:
    """Insert a topic whose ``ranges`` are yet empty; returns it with its partitions."""
    try:
        connection.execute(insert(TOPICS).values(_topic_values(row)))
    except IntegrityError as error:
        msg = f"topic {row.name.name} exists already"
        raise TopicExists(msg) from error
    _insert_configs(connection, row.uuid, row.configs)
    added = _insert_range(connection, row.uuid, first_number=0, count=partitions)
    return row._replace(ranges=(added,))


def add_partitions(
    connection: Connection, uuid: UUID, *, first_number: int, count: int
) -> PartitionRange:
    """Insert more partitions of a topic."""
    _check_there(connection, uuid)
    return _insert_range(connection, uuid, first_number=first_number, count=count)


def set_topic_configs(connection: Connection, uuid: UUID, configs: Mapping[str, str]) -> None:
    """Replace all overrides of a topic."""
    _check_there(connection, uuid)
    connection.execute(delete(TOPIC_CONFIGS).where(TOPIC_CONFIGS.c.topic_uuid == uuid))
    _insert_configs(connection, uuid, configs)


def delete_topic(connection: Connection, uuid: UUID, deleted_unix_ms: int) -> None:
    """Move a topic's partitions to the deleted ones; foreign keys delete the rest."""
    topic = connection.execute(select(TOPICS).where(TOPICS.c.uuid == uuid)).one_or_none()
    if topic is None:
        msg = f"topic {uuid} is not there"
        raise TopicNotFound(msg)
    name = TopicName(topic.namespace, topic.name)
    ranges = select(PARTITION_RANGES).where(PARTITION_RANGES.c.topic_uuid == uuid)
    deleted = [
        DeletedRange(
            uuid, name, PartitionRange(row.first_number, row.first_partition_id, row.length)
        )
        for row in connection.execute(ranges)
    ]
    _insert_deleted(connection, deleted, deleted_unix_ms)
    connection.execute(delete(TOPICS).where(TOPICS.c.uuid == uuid))


def load_deleted(connection: Connection) -> list[DeletedRange]:
    """Return the deleted partitions that are not forgotten."""
    return [
        DeletedRange(
            row.topic_uuid,
            TopicName(row.namespace, row.name),
            PartitionRange(row.first_number, row.first_partition_id, row.length),
        )
        for row in connection.execute(select(DELETED_PARTITIONS))
    ]


def forget_deleted(connection: Connection, uuid: UUID) -> None:
    """Remove the deleted partitions of a topic."""
    gone = DELETED_PARTITIONS.c.topic_uuid == uuid
    connection.execute(delete(DELETED_PARTITIONS).where(gone))


def restore(
    connection: Connection,
    topics: Sequence[TopicRow],
    deleted: Sequence[DeletedRange],
    outdated: Sequence[UUID],
    next_partition_id: int,
) -> None:
    """Insert rebuilt topics, in place of rows with their names or uuids and outdated ones.

    Queues and bindings go with the topics that are replaced, except where a rebuilt one has the
    same uuid.
    """
    rebuilt = {row.uuid for row in topics}
    queues = [row for row in load_queues(connection) if row.topic_uuid in rebuilt]
    bindings = [row for row in load_bindings(connection) if row.topic_uuid in rebuilt]
    if outdated:
        connection.execute(
            delete(TOPICS).where(TOPICS.c.uuid == bindparam("u")),
            [{"u": uuid} for uuid in outdated],
        )
    if topics:
        same_name = and_(TOPICS.c.namespace == bindparam("ns"), TOPICS.c.name == bindparam("n"))
        connection.execute(
            delete(TOPICS).where(or_(TOPICS.c.uuid == bindparam("u"), same_name)),
            [{"u": row.uuid, "ns": row.name.namespace, "n": row.name.name} for row in topics],
        )
        connection.execute(insert(TOPICS), [_topic_values(row) for row in topics])
        connection.execute(
            insert(PARTITION_RANGES),
            [
                {"topic_uuid": row.uuid, **part._asdict()}
                for row in topics
                for part in row.ranges
            ],
        )
    for row in topics:
        _insert_configs(connection, row.uuid, row.configs)
    for queue in queues:
        put_queue(connection, queue)
    for binding in bindings:
        add_binding(connection, binding)
    for gone in deleted:
        forget_deleted(connection, gone.topic_uuid)
    _insert_deleted(connection, deleted, 0)
    known = connection.scalar(
        select(COUNTERS.c.next_value).where(COUNTERS.c.name == PARTITION_IDS)
    )
    connection.execute(delete(COUNTERS).where(COUNTERS.c.name == PARTITION_IDS))
    connection.execute(
        insert(COUNTERS).values(
            name=PARTITION_IDS, next_value=max(next_partition_id, known or 1)
        )
    )


def load_addresses(connection: Connection) -> list[ProtocolAddress]:
    """Return all addresses."""
    rows = connection.execute(select(ADDRESSES))
    return [
        ProtocolAddress(
            row.namespace, row.protocol, row.native_name, row.topic_uuid, row.group_name
        )
        for row in rows
    ]


def put_address(connection: Connection, address: ProtocolAddress) -> None:
    """Insert or replace an address."""
    _check_there(connection, address.topic_uuid)
    delete_address(connection, address.namespace, address.protocol, address.native_name)
    connection.execute(
        insert(ADDRESSES).values(
            namespace=address.namespace,
            protocol=address.protocol,
            native_name=address.native_name,
            topic_uuid=address.topic_uuid,
            group_name=address.group,
        )
    )


def delete_address(
    connection: Connection, namespace: str, protocol: str, native_name: str
) -> None:
    """Remove an address if it is there."""
    connection.execute(
        delete(ADDRESSES).where(
            ADDRESSES.c.namespace == namespace,
            ADDRESSES.c.protocol == protocol,
            ADDRESSES.c.native_name == native_name,
        )
    )


def _topic_values(row: TopicRow) -> dict[str, Any]:
    return {
        "uuid": row.uuid,
        "namespace": row.name.namespace,
        "name": row.name.name,
        "is_internal": row.is_internal,
        "created_unix_ms": row.created_unix_ms,
    }


def _check_there(connection: Connection, uuid: UUID) -> None:
    if connection.scalar(select(TOPICS.c.uuid).where(TOPICS.c.uuid == uuid)) is None:
        msg = f"topic {uuid} is not there"
        raise TopicNotFound(msg)


def _insert_configs(connection: Connection, uuid: UUID, configs: Mapping[str, str]) -> None:
    if configs:
        connection.execute(
            insert(TOPIC_CONFIGS),
            [
                {"topic_uuid": uuid, "name": name, "value": value}
                for name, value in configs.items()
            ],
        )


def _insert_range(
    connection: Connection, uuid: UUID, *, first_number: int, count: int
) -> PartitionRange:
    first_id = reserve_ids(connection, PARTITION_IDS, count)
    if first_id + count - 1 > PARTITION_ID_MAX:
        msg = f"all {PARTITION_ID_MAX} partition ids of this data directory have been used"
        raise Overloaded(msg)
    added = PartitionRange(first_number, first_id, count)
    connection.execute(insert(PARTITION_RANGES).values(topic_uuid=uuid, **added._asdict()))
    return added


def _insert_deleted(
    connection: Connection, deleted: Sequence[DeletedRange], deleted_unix_ms: int
) -> None:
    if deleted:
        connection.execute(
            insert(DELETED_PARTITIONS),
            [
                {
                    "topic_uuid": gone.topic_uuid,
                    "namespace": gone.topic.namespace,
                    "name": gone.topic.name,
                    "deleted_unix_ms": deleted_unix_ms,
                    **gone.range._asdict(),
                }
                for gone in deleted
            ],
        )
