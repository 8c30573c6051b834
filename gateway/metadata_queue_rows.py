"""Queues in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata_sql``, which begins and commits.
"""

import json
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Row, delete, insert, select

from gateway.errors import StorageUnavailable, TopicNotFound
from gateway.metadata_schema import QUEUES, TOPICS
from gateway.queue_model import QueueRow, QueueSettings


def load_queues(connection: Connection) -> list[QueueRow]:
    """Return all queues, in no order. Errors: ``StorageUnavailable`` for what is no queue."""
    return [_to_queue(row) for row in connection.execute(select(QUEUES))]


def put_queue(connection: Connection, row: QueueRow) -> None:
    """Insert or replace a queue."""
    known = select(TOPICS.c.uuid).where(TOPICS.c.uuid == row.topic_uuid)
    if connection.scalar(known) is None:
        msg = f"topic {row.topic_uuid} is not there"
        raise TopicNotFound(msg)
    delete_queue(connection, row.topic_uuid, row.group)
    connection.execute(insert(QUEUES).values(_to_values(row)))


def delete_queue(connection: Connection, topic_uuid: UUID, group: str) -> bool:
    """Remove a queue and say whether there was one."""
    gone = delete(QUEUES).where(QUEUES.c.topic_uuid == topic_uuid, QUEUES.c.group_name == group)
    return connection.execute(gone).rowcount > 0


def _to_values(row: QueueRow) -> dict[str, Any]:
    return {
        "topic_uuid": row.topic_uuid,
        "group_name": row.group,
        "settings": row.settings.model_dump_json(exclude_defaults=True),
        "attributes": json.dumps(row.attributes),
        "tags": json.dumps(row.tags),
        "owns_topic": row.owns_topic,
        "created_unix_ms": row.created_unix_ms,
        "changed_unix_ms": row.changed_unix_ms,
    }


def _to_queue(row: Row[Any]) -> QueueRow:
    try:
        return QueueRow(
            row.topic_uuid,
            row.group_name,
            QueueSettings.model_validate_json(row.settings),
            json.loads(row.attributes),
            json.loads(row.tags),
            row.owns_topic,
            row.created_unix_ms,
            row.changed_unix_ms,
        )
    except (ValidationError, ValueError) as error:
        msg = f"metadata store: queue {row.topic_uuid} {row.group_name}: {error}"
        raise StorageUnavailable(msg) from error
