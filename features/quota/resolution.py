"""Choice of the quota that counts for a client, by the order of Apache Kafka.

| order | user | client id | shared by |
|---|---|---|---|
| 1 | its name | its name | connections of both names |
| 2 | its name | default | connections of both names |
| 3 | its name | - | all clients of the user |
| 4 | default | its name | connections of both names |
| 5 | default | default | connections of both names |
| 6 | default | - | all clients of the user |
| 7 | - | its name | all users of the client id |
| 8 | - | default | all users of the client id |

The first entity that has the key counts, and no other.
"""

from collections.abc import Mapping
from typing import NamedTuple

from features.quota.model import DEFAULT, Entity, Limits, QuotaKey


class Resolved(NamedTuple):
    """The limit that counts for a client, and the clients that share it.

    ``user`` and ``client_id`` are None where they do not matter.
    """

    limit: float
    user: str | None
    client_id: str | None


def resolve(
    quotas: Mapping[Entity, Limits], key: QuotaKey, user: str, client_id: str
) -> Resolved | None:
    """Return the quota ``key`` of a client; None if it has none.

    >>> quotas = {Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 100.0}}
    >>> resolve(quotas, QuotaKey.PRODUCER_BYTE_RATE, "alice", "app")
    Resolved(limit=100.0, user='alice', client_id=None)
    """
    for user_part in (user, DEFAULT, None):
        for client_part in (client_id, DEFAULT, None):
            limit = quotas.get(Entity(user_part, client_part), {}).get(key)
            if limit is not None:
                return Resolved(
                    limit,
                    None if user_part is None else user,
                    None if client_part is None else client_id,
                )
    return None


def resolve_ip(quotas: Mapping[Entity, Limits], ip: str) -> float | None:
    """Return the connections a second that an address may make; None without a limit."""
    for part in (ip, DEFAULT):
        limit = quotas.get(Entity(ip=part), {}).get(QuotaKey.CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None
