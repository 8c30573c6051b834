"""Entities of client quotas on Kafka's wire (KIP-546): lists of types and names.

A null name is the default of its type.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from adapters.kafka.errors import ErrorCode, Refused
from features.quota.model import DEFAULT, Entity
from gateway.errors import InvalidRequest

_FIELDS: Final[Mapping[str, str]] = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Field of an entity, by Kafka's name of the type."""


class WirePart(Protocol):
    """Part of an entity in a request."""

    entity_type: str
    entity_name: str | None


def to_entity(parts: Sequence[WirePart]) -> Entity:
    """Return the entity of a request. Errors: ``InvalidRequest``."""
    found: dict[str, Any] = {}
    for part in parts:
        field = _FIELDS.get(part.entity_type)
        if field is None:
            msg = f"Unhandled client quota entity type: {part.entity_type[:80]}"
            raise InvalidRequest(msg)
        if field in found:
            msg = f"Duplicate entity type {part.entity_type}"
            raise InvalidRequest(msg)
        found[field] = DEFAULT if part.entity_name is None else part.entity_name
    return Entity(**found)


def wire_parts(entity: Entity) -> list[tuple[str, str | None]]:
    """Return the types and names of an entity, null for the default."""
    return [
        (name, part if isinstance(part, str) else None)
        for name, field in _FIELDS.items()
        if (part := getattr(entity, field)) is not None
    ]


def field_of(entity_type: str) -> str:
    """Return the field of a type in a filter. Errors: ``InvalidRequest``, ``Refused``."""
    if not entity_type:
        msg = "Unexpected empty filter component entity type"
        raise InvalidRequest(msg)
    field = _FIELDS.get(entity_type)
    if field is None:
        msg = f"Custom entity type '{entity_type[:80]}' not supported"
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, msg)
    return field
