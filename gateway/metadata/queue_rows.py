"""Queues in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits.
"""

import json
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Row, delete, insert, select

from gateway.errors import StorageUnavailable, TopicNotFound
from gateway.metadata.schema import QUEUES, TOPICS
from gateway.queues.model import EarlierDelay, QueueRow, QueueSettings

_EARLIER_DELAYS: Final = "earlier_delays"  # beside the settings, in their column


def load_queues(
    connection: Connection, topic_uuids: Collection[UUID] | None = None
) -> list[QueueRow]:
    """Return all queues, or those of some topics, in no order.

    Errors: ``StorageUnavailable`` for an invalid row.
    """
    queues = select(QUEUES)
    if topic_uuids is not None:
        queues = queues.where(QUEUES.c.topic_uuid.in_(topic_uuids))
    return [_to_queue(row) for row in connection.execute(queues)]


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
        "settings": _settings_json(row),
        "attributes": json.dumps(row.attributes),
        "tags": json.dumps(row.tags),
        "owns_topic": row.owns_topic,
        "created_unix_ms": row.created_unix_ms,
        "changed_unix_ms": row.changed_unix_ms,
    }


def _settings_json(row: QueueRow) -> str:
    text = row.settings.model_dump_json(exclude_defaults=True)
    if not row.earlier_delays:
        return text
    return json.dumps({**json.loads(text), _EARLIER_DELAYS: row.earlier_delays})


def _to_settings(text: str) -> tuple[QueueSettings, tuple[EarlierDelay, ...]]:
    """Return settings and earlier delays. Errors: ``ValueError``, ``TypeError``."""
    if _EARLIER_DELAYS not in text:
        return QueueSettings.model_validate_json(text), ()
    found = json.loads(text)
    earlier = found.pop(_EARLIER_DELAYS, ())
    settings = QueueSettings.model_validate_json(json.dumps(found))
    return settings, tuple(
        EarlierDelay(tuple(ends), delay_ms, changed_unix_ms)
        for ends, delay_ms, changed_unix_ms in earlier
    )


def _to_queue(row: Row[Any]) -> QueueRow:
    try:
        settings, earlier = _to_settings(row.settings)
        return QueueRow(
            row.topic_uuid,
            row.group_name,
            settings,
            json.loads(row.attributes),
            json.loads(row.tags),
            row.owns_topic,
            row.created_unix_ms,
            row.changed_unix_ms,
            earlier,
        )
    except (ValidationError, ValueError, TypeError) as error:
        msg = f"metadata store: queue {row.topic_uuid} {row.group_name}: {error}"
        raise StorageUnavailable(msg) from error
