"""Subscription of a consumer group member (Kafka's ConsumerProtocolSubscription)."""

import struct
from typing import Final

_COUNTS: Final = struct.Struct(">hi")  # version, count of topics
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    r"""Return the topics of a subscription; None when it cannot be decoded.

    Other protocol types (Kafka Connect) put something else there.

    >>> subscribed_topics(b"\x00\x01\x00\x00\x00\x01\x00\x02ab\xff\xff\xff\xff")
    frozenset({'ab'})
    >>> subscribed_topics(b"?") is None
    True
    """
    try:
        _, count = _COUNTS.unpack_from(metadata)
        position = _COUNTS.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.append(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
