"""``$delayed/<seconds>/<topic>``: publish to a topic later, as EMQX and others have it.

No specification says this; names that begin with ``$`` are the server's (MQTT 5.0 section 4.7.2).
"""

from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode

DELAYED_PREFIX: Final = b"$delayed/"

_DIGITS_MAX: Final = 10
_MS_PER_S: Final = 1_000


def parse_delayed(topic: bytes) -> tuple[int, bytes]:
    """Return (milliseconds to wait, topic). Error: 0x90.

    >>> parse_delayed(b"$delayed/60/a/b")
    (60000, b'a/b')
    """
    seconds, _, rest = topic[len(DELAYED_PREFIX) :].partition(b"/")
    if not seconds.isdigit() or len(seconds) > _DIGITS_MAX or not rest:
        msg = f"topic name {topic.decode()[:80]!r} is not $delayed/<seconds>/<topic>"
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, msg)
    return int(seconds) * _MS_PER_S, rest
