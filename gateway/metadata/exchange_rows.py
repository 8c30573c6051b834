"""Exchanges and bindings in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits. Bindings to a
topic go with the topic.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, or_, select

from gateway.errors import TopicNotFound
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata.schema import BINDINGS, EXCHANGES, TOPICS


def load_exchanges(
    connection: Connection, names: Collection[str] | None = None
) -> list[ExchangeRow]:
    """Return all exchanges, or those of these names in any namespace, oldest first."""
    ordered = select(EXCHANGES).order_by(EXCHANGES.c.created_unix_ms, EXCHANGES.c.name)
    if names is not None:
        ordered = ordered.where(EXCHANGES.c.name.in_(names))
    return [
        ExchangeRow(
            ExchangeName(row.namespace, row.name),
            row.type,
            row.arguments,
            row.auto_delete,
            row.is_internal,
            row.created_unix_ms,
        )
        for row in connection.execute(ordered)
    ]


def put_exchange(connection: Connection, row: ExchangeRow) -> None:
    """Insert or replace an exchange; its bindings stay."""
    connection.execute(delete(EXCHANGES).where(_is_named(row.name)))
    values = row._asdict()
    del values["is_durable"]  # all that are stored are
    connection.execute(insert(EXCHANGES).values(values | row.name._asdict()))


def delete_exchange(connection: Connection, name: ExchangeName) -> bool:
    """Remove an exchange and the bindings from it and to it; say whether there was one."""
    to_it = and_(BINDINGS.c.topic_uuid.is_(None), BINDINGS.c.destination == name.name)
    ends_at_it = or_(BINDINGS.c.source == name.name, to_it)
    connection.execute(
        delete(BINDINGS).where(BINDINGS.c.namespace == name.namespace, ends_at_it)
    )
    return connection.execute(delete(EXCHANGES).where(_is_named(name))).rowcount > 0


def load_bindings(
    connection: Connection, sources: Collection[str] | None = None
) -> list[BindingRow]:
    """Return all bindings, or those from exchanges of these names, oldest first."""
    ordered = select(BINDINGS).order_by("id")
    if sources is not None:
        ordered = ordered.where(BINDINGS.c.source.in_(sources))
    return [_to_binding(row) for row in connection.execute(ordered)]


def add_binding(connection: Connection, row: BindingRow) -> None:
    """Insert a binding that is not there. Error: ``TopicNotFound``."""
    if row.topic_uuid is not None:
        known = select(TOPICS.c.uuid).where(TOPICS.c.uuid == row.topic_uuid)
        if connection.scalar(known) is None:
            msg = f"topic {row.destination} is not there"
            raise TopicNotFound(msg)
    connection.execute(insert(BINDINGS).values(_to_values(row)))


def delete_binding(connection: Connection, row: BindingRow) -> bool:
    """Remove a binding and say whether there was one."""
    same = [BINDINGS.c[name] == value for name, value in _to_values(row).items()]
    return connection.execute(delete(BINDINGS).where(*same)).rowcount > 0


def _is_named(name: ExchangeName) -> ColumnElement[bool]:
    return and_(EXCHANGES.c.namespace == name.namespace, EXCHANGES.c.name == name.name)


def _to_values(row: BindingRow) -> dict[str, Any]:
    return {
        "namespace": row.source.namespace,
        "source": row.source.name,
        "destination": row.destination,
        "topic_uuid": row.topic_uuid,
        "routing_key": row.routing_key,
        "arguments": row.arguments,
    }


def _to_binding(row: Row[Any]) -> BindingRow:
    return BindingRow(
        ExchangeName(row.namespace, row.source),
        row.destination,
        row.topic_uuid,
        row.routing_key,
        row.arguments,
    )
