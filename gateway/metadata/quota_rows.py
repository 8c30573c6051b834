"""Client quotas in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from features.quota.model import DEFAULT, QUOTA_KEYS, Entity, Part, QuotaKey
from gateway.metadata.schema import CLIENT_QUOTAS

_DEFAULT: Final = "*"
_NAMED: Final = "="


def load_quotas(connection: Connection) -> dict[Entity, dict[QuotaKey, float]]:
    """Return all quotas, in no order; those that this version does not know are left out."""
    found: dict[Entity, dict[QuotaKey, float]] = {}
    for row in connection.execute(select(CLIENT_QUOTAS)):
        key = QUOTA_KEYS.get(row.name)
        if key is not None:
            entity = Entity(_part(row.user_name), _part(row.client_id), _part(row.ip))
            found.setdefault(entity, {})[key] = row.value
    return found


def change_quotas(
    connection: Connection, entity: Entity, changes: Mapping[QuotaKey, float | None]
) -> None:
    """Set quotas of an entity; None removes one."""
    values = {
        "user_name": _text(entity.user),
        "client_id": _text(entity.client_id),
        "ip": _text(entity.ip),
    }
    for key, value in changes.items():
        named = values | {"name": key.value}
        connection.execute(delete(CLIENT_QUOTAS).where(_is(named)))
        if value is not None:
            connection.execute(insert(CLIENT_QUOTAS).values(named | {"value": value}))


def _is(values: Mapping[str, str]) -> ColumnElement[bool]:
    return and_(*(CLIENT_QUOTAS.c[name] == value for name, value in values.items()))


def _text(part: Part) -> str:
    if part is None:
        return ""
    return _NAMED + part if isinstance(part, str) else _DEFAULT


def _part(text: str) -> Part:
    if not text:
        return None
    return DEFAULT if text == _DEFAULT else text.removeprefix(_NAMED)
