"""Topic names as PUBLISH has them (MQTT 5.0 section 4.7): bytes that are checked once."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.primitives import text_of

_CACHED_MAX: Final = 65_536
_CACHED_BYTES_MAX: Final = 256
"""Longer names are checked each time: the cache stays below 32 MiB."""


def check_topic(topic: bytes) -> None:
    """Raise when ``topic`` is no topic name (section 4.7); an empty one passes: alias.

    Error: ``MqttError``, MALFORMED_PACKET (MQTT-3.3.2-1) or TOPIC_NAME_INVALID
    (MQTT-3.3.2-2).
    """
    if len(topic) <= _CACHED_BYTES_MAX:
        _check_cached(topic)
    else:
        _check(topic)


def _check(topic: bytes) -> None:
    text_of(topic)
    if b"+" in topic or b"#" in topic:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic name has a wildcard")


_check_cached = lru_cache(_CACHED_MAX)(_check)


def good_count(topics: Sequence[bytes]) -> int:
    """Return how many of the topics, from the first on, ``check_topic`` lets pass.

    All in one look, as long as none has a byte above 127 or below 1, nor a wildcard.
    """
    data = b"/".join(topics)
    if data.isascii() and not (b"+" in data or b"#" in data or b"\0" in data):
        return len(topics)
    for count, topic in enumerate(topics):
        try:
            check_topic(topic)
        except MqttError:
            return count
    return len(topics)
