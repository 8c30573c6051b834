"""History of a message's deaths, and the end of cycles of dead letters (RabbitMQ's x-death).

The header ``dlq.history`` of a dead letter that went through an exchange has one entry for each
queue and reason, the latest first. A message that comes to a queue in which it died before is
dropped, unless a consumer has rejected it since: "work queue, rejected, retry queue, expired, work
queue" may go on for ever, a circle of queues in which messages only expire may not.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from gateway.model import Headers

HISTORY_HEADER: Final = "dlq.history"
REJECTED: Final = "rejected"
DEATHS_MAX: Final = 64
"""Entries of a history; so many without a rejection are a cycle."""
KEYS_MAX: Final = 16
"""Routing keys of an entry."""
KEY_CHARS_MAX: Final = 255
"""Characters of such a key, as in AMQP 0-9-1; the key of a record may be longer."""
HISTORY_BYTES_MAX: Final = 65_536

_FIELDS: Final = 8


class Death(NamedTuple):
    """Deaths of a message in one queue for one reason.

    ``exchange`` and ``routing_keys``: how the message came to the queue at the first of them.
    ``ttl_ms``: the message's own time to live, -1 without one.
    """

    queue: str
    reason: str
    times: int
    first_unix_ms: int
    last_unix_ms: int
    exchange: str
    routing_keys: tuple[str, ...]
    ttl_ms: int = -1


def with_death(history: Sequence[Death], death: Death) -> list[Death]:
    """Return the history after one more death, which comes first.

    One in the same queue for the same reason is counted, and keeps what the first one says.
    """
    others = []
    for one in history:
        if (one.queue, one.reason) == (death.queue, death.reason):
            death = one._replace(times=one.times + 1, last_unix_ms=death.last_unix_ms)
        else:
            others.append(one)
    return [death, *others][:DEATHS_MAX]


def is_cycle(history: Sequence[Death], queue: str) -> bool:
    """Return whether a message comes back to a queue without having been rejected since.

    ``history``: with the latest death, first.
    """
    for death in history:
        if death.reason == REJECTED:
            return False
        if death.queue == queue:
            return True
    return len(history) >= DEATHS_MAX


def format_history(history: Sequence[Death]) -> bytes:
    """Return the value of the header ``dlq.history``: JSON, an array for each entry.

    Routing keys are cut. A history that is too long nevertheless says only where and why its
    deaths were: without that a cycle would not be found.
    """
    value = _format(
        death._replace(
            routing_keys=tuple(key[:KEY_CHARS_MAX] for key in death.routing_keys[:KEYS_MAX])
        )
        for death in history
    )
    if len(value) <= HISTORY_BYTES_MAX:
        return value
    return _format(death._replace(exchange="", routing_keys=()) for death in history)


def _format(history: Iterable[Death]) -> bytes:
    rows = [[*death[:6], death.routing_keys, death.ttl_ms] for death in history]
    return json.dumps(rows, separators=(",", ":")).encode()


def history_of(headers: Headers) -> list[Death]:
    """Return the history of a message; none for a header that is not one."""
    for name, value in headers:
        if name == HISTORY_HEADER and value is not None and len(value) <= HISTORY_BYTES_MAX:
            try:
                return [_parse(row) for row in json.loads(value)][:DEATHS_MAX]
            except (ValueError, TypeError, RecursionError):
                return []
    return []


def _parse(row: Any) -> Death:  # noqa: ANN401 - of JSON
    queue, reason, times, first, last, exchange, keys, ttl_ms = row
    texts = (queue, reason, exchange, *keys)
    numbers = (times, first, last, ttl_ms)
    if not all(isinstance(one, str) for one in texts):
        raise TypeError(f"a name is not a text: {texts}")
    if not all(isinstance(one, int) for one in numbers):
        raise TypeError(f"a number is none: {numbers}")
    return Death(queue, reason, times, first, last, exchange, tuple(keys)[:KEYS_MAX], ttl_ms)
