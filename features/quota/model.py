"""Quotas and the clients that they are for, by the names of Apache Kafka (KIP-13, KIP-546).

An entity is a user, a client id, both together, or an IP address. Each part is a name, or
``DEFAULT``: then it is for every client that has no quota by its own name.
"""

import math
from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from typing import Final, NamedTuple

from gateway.errors import InvalidRequest

NAME_CHARS_MAX: Final = 255


class QuotaKey(Enum):
    """Quota by its name in Kafka."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes a second
    CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes a second
    REQUEST_PERCENTAGE = "request_percentage"  # of one core
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions a second
    CONNECTION_CREATION_RATE = "connection_creation_rate"  # connections a second


QUOTA_KEYS: Final = {key.value: key for key in QuotaKey}
_OF_IP: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
_INTEGERS: Final = _OF_IP | {QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE}
_INTEGER_MAX: Final = 2**63 - 1


class _Default(Enum):
    DEFAULT = "<default>"


DEFAULT: Final = _Default.DEFAULT
"""Part of an entity that stands for every name without a quota of its own."""
DEFAULT_TEXT: Final = DEFAULT.value
"""``DEFAULT`` in the config file, in REST and in commands."""

Part = str | _Default | None
Limits = Mapping[QuotaKey, float]


class Entity(NamedTuple):
    """Clients that a quota is for. A part that is None does not matter."""

    user: Part = None
    client_id: Part = None
    ip: Part = None

    def text(self) -> str:
        """Return the parts for logs and messages.

        >>> Entity("alice", DEFAULT).text()
        'user alice, client_id <default>'
        """
        return ", ".join(
            f"{name} {part_text(part)}"
            for name, part in zip(self._fields, self, strict=True)
            if part is not None
        )


def part_text(part: str | _Default) -> str:
    """Return a part as text, ``DEFAULT`` as ``DEFAULT_TEXT``."""
    return part if isinstance(part, str) else part.value


def parse_part(text: str | None) -> Part:
    """Return the part of a text, where ``DEFAULT_TEXT`` is ``DEFAULT``."""
    return DEFAULT if text == DEFAULT_TEXT else text


def check_entity(entity: Entity) -> Entity:
    """Return the entity, with its address in the usual form. Errors: ``InvalidRequest``."""
    if entity == Entity():
        msg = "Invalid empty client quota entity"
        raise InvalidRequest(msg)
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        msg = "Invalid quota entity combination, ip goes with neither user nor client-id"
        raise InvalidRequest(msg)
    for name, part in zip(Entity._fields, entity, strict=True):
        if isinstance(part, str) and not 0 < len(part) <= NAME_CHARS_MAX:
            msg = f"{name} has {len(part)} characters, not 1 to {NAME_CHARS_MAX}"
            raise InvalidRequest(msg)
    if isinstance(entity.ip, str):
        try:
            return entity._replace(ip=str(ip_address(entity.ip)))
        except ValueError:
            msg = f"{entity.ip} is not a valid IP address"
            raise InvalidRequest(msg) from None
    return entity


def check_limit(entity: Entity, name: str, value: float) -> QuotaKey:
    """Return the key of a limit that the entity may have. Errors: ``InvalidRequest``."""
    key = find_key(entity, name)
    if not (math.isfinite(value) and value > 0):
        msg = f"Quota {name} must be greater than 0"
        raise InvalidRequest(msg)
    if key in _INTEGERS and (value != int(value) or value > _INTEGER_MAX):
        msg = f"{name} must be an integer"
        raise InvalidRequest(msg)
    return key


def find_key(entity: Entity, name: str) -> QuotaKey:
    """Return a key by its name. Errors: ``InvalidRequest`` for one that the entity has not."""
    key = QUOTA_KEYS.get(name)
    if key is None or (key in _OF_IP) != (entity.ip is not None):
        msg = f"Invalid configuration key {name[:NAME_CHARS_MAX]}"
        raise InvalidRequest(msg)
    return key
