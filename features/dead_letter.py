"""Headers of dead letters, and of dead letters that are sent again.

A dead letter keeps the key, value, timestamp and headers of its message, and gets headers that
give reason and origin:

    dlq.reason            attempts, rejected, expired, corrupt, ...
    dlq.source.topic      and .partition, .offset: its position, as text and decimal numbers
    dlq.group             the queue group that rejected it
    dlq.attempts          number of deliveries
    dlq.protocol          protocol of the group's consumers; absent where unknown
    dlq.hops              number of such moves, over all queues
    dlq.left-out          reason why value and headers are missing, if they are
    dlq.expires-at        the former header expires-at: a dead letter does not expire
    message-id            its own, else the one that clients were given

Those of a group of Kafka have the headers of KIP-1191 too, ``__dlq.errors.topic`` and others.

A redrive removes all of these but ``dlq.hops`` and ``message-id``, so that the number of moves is
bounded, even between two queues that are each other's dead-letter queue.
"""

from typing import Final, NamedTuple

from gateway.model import (
    DLQ_ATTEMPTS,
    DLQ_GROUP,
    DLQ_HOPS,
    DLQ_LEFT_OUT,
    DLQ_PREFIX,
    DLQ_PROTOCOL,
    DLQ_REASON,
    DLQ_SOURCE_OFFSET,
    DLQ_SOURCE_PARTITION,
    DLQ_SOURCE_TOPIC,
    EXPIRES_AT,
    KAFKA_DLQ_PREFIX,
    MESSAGE_ID,
    Headers,
)

HOPS_MAX: Final = 16
"""Moves of one message; the next is none: it is dropped."""

WAS_TO_EXPIRE_AT: Final = "dlq.expires-at"

KAFKA: Final = "kafka"
"""Protocol whose dead letters have the headers of KIP-1191."""

_KAFKA_MESSAGES: Final = {
    "delivery_limit": "Offset delivery count exceeded the threshold.",
    "rejected": "Offset rejected by client.",
}

_DIGITS_MAX: Final = 19  # of a signed 64-bit number


class Origin(NamedTuple):
    """Source position of a dead letter and reason of its move. ``protocol`` may be empty."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: int
    reason: str
    protocol: str = ""


def dead_letter_headers(
    headers: Headers,
    origin: Origin,
    *,
    message_id: str,
    left_out: str = "",
    hops_max: int = HOPS_MAX,
) -> list[tuple[str, bytes | None]] | None:
    """Return the headers of a message's dead letter; None when it has moved ``hops_max`` times.

    ``message_id`` is what the message is known by where it says no id itself. ``left_out``
    says why the dead letter is without what the message held; empty when it is not.
    """
    hops = hops_of(headers) + 1
    if hops > hops_max:
        return None
    kept = [
        (WAS_TO_EXPIRE_AT, value) if name == EXPIRES_AT else (name, value)
        for name, value in headers
        if not name.startswith((DLQ_PREFIX, KAFKA_DLQ_PREFIX))
    ]
    if all(name != MESSAGE_ID for name, _ in kept):
        kept.append((MESSAGE_ID, message_id.encode()))
    said = (
        (DLQ_REASON, origin.reason),
        (DLQ_SOURCE_TOPIC, origin.topic),
        (DLQ_SOURCE_PARTITION, str(origin.partition)),
        (DLQ_SOURCE_OFFSET, str(origin.offset)),
        (DLQ_GROUP, origin.group),
        (DLQ_ATTEMPTS, str(origin.attempts)),
        (DLQ_PROTOCOL, origin.protocol),
        (DLQ_HOPS, str(hops)),
        (DLQ_LEFT_OUT, left_out),
    )
    kept += [(name, text.encode()) for name, text in said if text]
    if origin.protocol == KAFKA:
        kept += _kafka_headers(origin)
    return kept


def _kafka_headers(origin: Origin) -> list[tuple[str, bytes | None]]:
    """Return the headers that KIP-1191 gives to dead letters of share groups."""
    said = (
        ("topic", origin.topic),
        ("partition", str(origin.partition)),
        ("offset", str(origin.offset)),
        ("group", origin.group),
        ("delivery.count", str(origin.attempts)),
        ("message", _KAFKA_MESSAGES.get(origin.reason, origin.reason)),
    )
    return [(KAFKA_DLQ_PREFIX + name, text.encode()) for name, text in said]


def hops_of(headers: Headers) -> int:
    """Return how often a message has moved; 0 when it says nothing that makes sense.

    >>> hops_of([("dlq.hops", b"3")]), hops_of([("dlq.hops", b"-3")]), hops_of([])
    (3, 0, 0)
    """
    return _number(_text(headers, DLQ_HOPS))


def origin(headers: Headers) -> Origin | None:
    """Return where a dead letter came from; None when the headers are not those of one.

    Anybody may write such headers: numbers that are none are 0.
    """
    topic = _text(headers, DLQ_SOURCE_TOPIC)
    reason = _text(headers, DLQ_REASON)
    if not topic and not reason:
        return None
    return Origin(
        topic,
        _number(_text(headers, DLQ_SOURCE_PARTITION)),
        _number(_text(headers, DLQ_SOURCE_OFFSET)),
        _text(headers, DLQ_GROUP),
        _number(_text(headers, DLQ_ATTEMPTS)),
        reason,
        _text(headers, DLQ_PROTOCOL),
    )


def _text(headers: Headers, wanted: str) -> str:
    """Return the first such header as text, empty when there is none."""
    for name, value in headers:
        if name == wanted and value is not None:
            return value.decode("utf-8", "replace")
    return ""


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else 0
