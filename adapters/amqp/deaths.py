"""Deaths of a message as RabbitMQ shows them: ``x-death``, ``x-first-death-*``, ``x-last-death-*``.

https://www.rabbitmq.com/docs/dlx#effects
"""

from collections.abc import Sequence
from typing import Final

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.properties import Properties
from features.dead_letter_history import Death

_REASONS: Final = {"attempts": "delivery_limit", "length": "maxlen"}
_OWN: Final = frozenset(
    {
        "x-death",
        *(
            f"x-{when}-death-{what}"
            for when in ("first", "last")
            for what in ("reason", "queue", "exchange")
        ),
    }
)


def with_deaths(properties: Properties, history: Sequence[Death]) -> Properties:
    """Return properties with the headers of deaths, and without the expiration.

    ``history``: the latest death first. Headers of those names that a publisher has set are left
    out.
    """
    first = min(history, key=lambda death: death.first_unix_ms)
    pairs = [pair for pair in properties.table if pair[0] not in _OWN]
    fields = tuple(_to_field(death, properties.expiration) for death in history)
    pairs.append(("x-death", Field("A", fields)))
    for when, death in (("first", first), ("last", history[0])):
        pairs += [
            (f"x-{when}-death-reason", Field("S", reason_of(death))),
            (f"x-{when}-death-queue", Field("S", death.queue)),
            (f"x-{when}-death-exchange", Field("S", death.exchange)),
        ]
    return properties._replace(headers=Table(pairs), expiration=None)


def reason_of(death: Death) -> str:
    """Return the reason of a death in RabbitMQ's words."""
    return _REASONS.get(death.reason, death.reason)


def _to_field(death: Death, expiration: str | None) -> Field:
    pairs = [
        ("count", Field("l", death.times)),
        ("reason", Field("S", reason_of(death))),
        ("queue", Field("S", death.queue)),
        ("time", Field("T", death.first_unix_ms // 1_000)),
        ("exchange", Field("S", death.exchange)),
        ("routing-keys", Field("A", tuple(Field("S", key) for key in death.routing_keys))),
    ]
    if death.ttl_ms >= 0:  # only its first death, by which it loses its expiration
        text = str(death.ttl_ms) if expiration is None else expiration
        pairs.append(("original-expiration", Field("S", text)))
    return Field("F", Table(pairs))
