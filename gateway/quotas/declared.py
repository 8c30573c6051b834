"""Quotas of the config file as the manager takes them."""

from collections.abc import Iterable

from features.quota.model import Entity, Limits, check_entity, check_limit, parse_part
from gateway.config.base import InvalidSettings
from gateway.config.quotas import DeclaredQuota


def entity_of(table: DeclaredQuota) -> Entity:
    """Return the entity of a table, whose parts are checked."""
    parts = Entity(parse_part(table.user), parse_part(table.client_id), parse_part(table.ip))
    return check_entity(parts)


def declared_quotas(tables: Iterable[DeclaredQuota]) -> dict[Entity, Limits]:
    """Return the quotas by their entities. Error: ``InvalidSettings`` for an entity twice."""
    found: dict[Entity, Limits] = {}
    for table in tables:
        entity = entity_of(table)
        if entity in found:
            msg = f"quotas: {entity.text()} is declared twice"
            raise InvalidSettings(msg)
        found[entity] = {
            check_limit(entity, name, value): value for name, value in table.limits.items()
        }
    return found
